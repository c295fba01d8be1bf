import assert from 'node:assert/strict'
import { execFileSync, fork } from 'node:child_process'
import { once } from 'node:events'
import { copyFileSync, existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { fromAtomic } from '../../src/money/usdc.ts'
import { openPayer } from '../support/ledger.ts'
import { testDatabase } from '../support/postgres.ts'
import { drill, isWhole } from './drill.ts'
import type { Recorded, WorkerOrder } from './linearizability-worker.ts'

// The ledger as one machine that does one thing at a time: for every history that concurrent processes have seen, porcupine looks for an
// order of its operations that a sequential account with a key limit could have had, and that contradicts no client's clock.

const porcupine = process.env.PORCUPINE_DIR ?? ''
const source = fileURLToPath(new URL('check-history.go', import.meta.url))
const engine = { name: 'Go', program: 'go', package: 'golang-go', version: 'version' }
const seed = Number(process.env.LINEARIZABILITY_SEED ?? 1)
const processes = 4
const clientsPerProcess = 2
const accounts = isWhole ? 100 : 10
const deposit = 2_000
const limit = 1_500
const buildMsMax = 300_000

type Verdict = Readonly<Record<'accounts' | 'operations' | 'linearizable' | 'illegal' | 'unknown', number>>

drill({
  engine,
  tried: 'holds, ends, limit changes and reads of one account by four processes are linearizable',
  ...(existsSync(join(porcupine, 'go.mod'))
    ? {}
    : { problem: 'set PORCUPINE_DIR to a checkout of github.com/anishathalye/porcupine' }),
  async run({ path }, step) {
    const folder = mkdtempSync(join(tmpdir(), 'penny-porcupine-'))
    try {
      const check = buildChecker(path, folder)
      const histories = await recordHistories()
      step(`${histories.length} histories recorded`)
      const verdict = check(histories)
      assert.deepEqual([verdict.illegal, verdict.unknown], [0, 0], JSON.stringify(verdict))
      const refused = histories.flat().filter(({ answer }) => answer !== undefined && answer !== 'held').length
      // A checker that finds nothing proves nothing: it must refuse each history in which one answer is changed.
      const corrupted = check(histories.map(withOneLie))
      assert.equal(corrupted.illegal, histories.length, JSON.stringify(corrupted))
      return `${verdict.operations} operations on ${verdict.accounts} accounts, ${refused} refusals: all linearizable; ${corrupted.illegal} of ${histories.length} changed histories found`
    } finally {
      rmSync(folder, { recursive: true, force: true })
    }
  },
})

function buildChecker(go: string, folder: string): (histories: readonly (readonly Recorded[])[]) => Verdict {
  copyFileSync(source, join(folder, 'main.go'))
  const name = 'github.com/anishathalye/porcupine'
  writeFileSync(
    join(folder, 'go.mod'),
    `module check\n\ngo 1.16\n\nrequire ${name} v0.0.0\n\nreplace ${name} => ${porcupine}\n`,
  )
  const env = { ...process.env, GOFLAGS: '-mod=mod', GOPROXY: 'off', GOCACHE: join(folder, 'cache') }
  const program = join(folder, 'check-history')
  execFileSync(go, ['build', '-o', program, '.'], { cwd: folder, env, stdio: 'pipe', timeout: buildMsMax })
  return (histories) => {
    const input = histories.map((history) => `${JSON.stringify(history)}\n`).join('')
    return JSON.parse(execFileSync(program, { input, encoding: 'utf8', maxBuffer: 1 << 20 })) as Verdict
  }
}

async function recordHistories(): Promise<readonly (readonly Recorded[])[]> {
  const ledger = await testDatabase()
  try {
    const payers = await Promise.all(
      Array.from({ length: accounts }, () =>
        openPayer(ledger.database, BigInt(deposit), { limit: fromAtomic(BigInt(limit)) }),
      ),
    )
    const opened: Recorded = { client: 0, kind: 'open', amount: deposit, charged: limit, call: 0, return: 1 }
    const parts = await Promise.all(
      Array.from({ length: processes }, (_, index) =>
        runWorker({
          databaseUrl: ledger.url,
          payers,
          seed: seed + index,
          clients: Array.from({ length: clientsPerProcess }, (_, client) => 1 + index * clientsPerProcess + client),
          operationsPerClient: 20,
          quoteMax: 500,
          limitMax: 2 * limit,
        }),
      ),
    )
    return payers.map((_, index) => [opened, ...parts.flatMap((histories) => histories[index]!)])
  } finally {
    await ledger.drop()
  }
}

async function runWorker(order: WorkerOrder): Promise<readonly (readonly Recorded[])[]> {
  const worker = fork(new URL('./linearizability-worker.ts', import.meta.url), { execArgv: [] })
  const answered = once(worker, 'message') as Promise<[Recorded[][]]>
  const silent = once(worker, 'disconnect').then(() => assert.fail('a worker ended without a history'))
  silent.catch(() => {})
  worker.send(order)
  const [histories] = await Promise.race([answered, silent])
  return histories
}

/** The last read says that one unit more is spendable. */
function withOneLie(history: readonly Recorded[]): readonly Recorded[] {
  const index = history.findLastIndex(({ kind }) => kind === 'read')
  return history.map((each, at) => (at === index ? { ...each, spendable: each.spendable! + 1 } : each))
}
