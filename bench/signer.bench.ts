import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { supervise } from '../src/process/supervisor.ts'
import { createSigner } from '../src/signer/signer.ts'
import { SignerLine } from '../src/signer/signer-line.ts'
import type { SignerReady, SignerSettings } from '../src/signer/signer-process.ts'
import { batchMax } from '../src/signer/signing-request.ts'
import { signerSettings, transferRequest } from '../test/support/signing.ts'
import type { Bench } from './run.ts'

const measuredMs = 5_000
const warmUpMs = 1_500
const accountCount = 1_000
const never = Number.MAX_SAFE_INTEGER

/** The signer process over its socket, kept busy by one caller; CPU of both sides apart. */
export const signerBench: Bench = {
  title: 'signatures per second of the signer process, and CPU per signature',
  async run(progress) {
    const dataDir = mkdtempSync(join(tmpdir(), 'penny-bench-'))
    const child = await supervise<SignerSettings, SignerReady>({
      name: 'the signer',
      module: new URL('../src/signer/signer-process.ts', import.meta.url),
      settings: () => signerSettings(dataDir),
    })
    try {
      const rows = []
      for (const checkEvery of [never, batchMax, 1]) {
        const checked = checkEvery === never ? 'none' : `1 in ${checkEvery}`
        progress(`batches of ${batchMax}, checked by the caller: ${checked}`)
        rows.push({ batch: batchMax, checked, ...(await measure(dataDir, child.ready.pid, checkEvery)) })
      }
      return rows
    } finally {
      await child.stop()
      rmSync(dataDir, { recursive: true, force: true })
    }
  },
}

async function measure(dataDir: string, pid: number, checkEvery: number) {
  const line = new SignerLine({ dataDir })
  const signer = createSigner({
    ask: (request) => line.ask(request),
    checkEvery,
    onFault: (error) => console.error(error),
  })
  const accounts = Array.from({ length: accountCount }, (_, index) => {
    return `00000000-0000-7000-8000-${String(index).padStart(12, '0')}`
  })
  for (const account of accounts) await signer.addressOf(account)
  let sequence = 0
  let signed = 0
  let isOver = false
  // Four callers, so that two batches are under way and the next ones wait.
  async function work(): Promise<void> {
    while (!isOver) {
      const batch = Array.from({ length: batchMax }, () => {
        sequence += 1
        return transferRequest('authorization', {
          account: accounts[sequence % accountCount]!,
          sequence: BigInt(sequence),
        })
      })
      const outcomes = await signer.signEach(batch)
      signed += outcomes.length
    }
  }
  const workers = Array.from({ length: 4 }, work)
  await new Promise((resolve) => setTimeout(resolve, warmUpMs))
  const [signedBefore, startedMs, callerBefore, signerBefore] = [
    signed,
    performance.now(),
    process.cpuUsage(),
    cpuMs(pid),
  ]
  await new Promise((resolve) => setTimeout(resolve, measuredMs))
  const count = signed - signedBefore
  const caller = process.cpuUsage(callerBefore)
  const result = {
    signatures_per_second: Math.round((count * 1000) / (performance.now() - startedMs)),
    signer_cpu_ms: Number(((cpuMs(pid) - signerBefore) / count).toPrecision(3)),
    caller_cpu_ms: Number(((caller.user + caller.system) / 1000 / count).toPrecision(3)),
  }
  isOver = true
  await Promise.all(workers)
  line.close()
  return result
}

/** Of another process, in milliseconds; Linux counts it in hundredths of a second. */
function cpuMs(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]!.split(' ')
  return (Number(fields[11]) + Number(fields[12])) * 10
}
