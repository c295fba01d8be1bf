import { randomInt } from 'node:crypto'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { parseArgs } from 'node:util'
import fc from 'fast-check'
import { supervise } from '../src/process/supervisor.ts'
import { openSigner } from '../src/signer/signer.ts'
import type { SignerReady, SignerSettings } from '../src/signer/signer-process.ts'
import { signerSocketPath } from '../src/signer/signer-socket.ts'
import { batchMax, type SigningAnswer } from '../src/signer/signing-request.ts'
import { accountsOfRequests, offPolicyRequest } from './support/off-policy-requests.ts'
import { ownerAddress, signerSettings, transferRequest } from './support/signing.ts'

// A million requests against the policy to the socket of a real signer process: none may be signed. `--seed` repeats a
// run, `--count` makes it shorter or longer.

const { values } = parseArgs({ options: { seed: { type: 'string' }, count: { type: 'string', default: '1000000' } } })
const seed = values.seed === undefined ? randomInt(2 ** 31) : Number(values.seed)
const count = Number(values.count)
const sampleSize = 100 * batchMax

console.log(`${count} requests of seed ${seed}`)
const dataDir = mkdtempSync(join(tmpdir(), 'penny-fuzz-signer-'))
let deaths = 0
const child = await supervise<SignerSettings, SignerReady>({
  name: 'the signer',
  module: new URL('../src/signer/signer-process.ts', import.meta.url),
  settings: () => signerSettings(dataDir),
  onRestart: () => (deaths += 1),
})
const signer = openSigner({ dataDir, onFault: (error) => console.error(error) })
for (const account of accountsOfRequests) await signer.registerOwner(account, ownerAddress, true)

const socket = connect(await signerSocketPath(dataDir))
await once(socket, 'connect')
const lines = createInterface({ input: socket })[Symbol.asyncIterator]()
const reasons: Record<string, number> = {}
const signed: string[] = []
for (let done = 0; done < count; done += sampleSize) {
  const requests = fc.sample(offPolicyRequest, { numRuns: Math.min(sampleSize, count - done), seed: seed + done })
  for (let start = 0; start < requests.length; start += batchMax) {
    const batch = requests.slice(start, start + batchMax)
    socket.write(`{"id":${start},"requests":[${batch.join(',')}]}\n`)
    const answer = (await lines.next()).value ?? '{"answers":[]}'
    const { answers } = JSON.parse(answer) as { answers: readonly SigningAnswer[] }
    if (answers.length !== batch.length || /[0-9a-f]{128}/i.test(answer)) signed.push(...batch)
    for (const one of answers) {
      const reason = 'refusal' in one ? one.refusal.reason : 'none'
      reasons[reason] = (reasons[reason] ?? 0) + 1
    }
  }
  if ((done / sampleSize) % 10 === 0) console.log(`${done + requests.length} requests`)
}
const [honest] = await signer.signEach([transferRequest('authorization', { account: accountsOfRequests[0]! })])
socket.destroy()
signer[Symbol.dispose]()
await child.stop()
rmSync(dataDir, { recursive: true, force: true })

console.table(Object.entries(reasons).toSorted(([, one], [, other]) => other - one))
const isHonestSigned = honest !== undefined && 'signature' in honest
const isGood =
  signed.length === 0 && deaths === 0 && isHonestSigned && reasons.none === undefined && reasons.failed === undefined
for (const text of signed.slice(0, 20)) console.error(text)
console.log(isGood ? 'none was signed, and an honest one was' : `repeat with --seed ${seed}`)
process.exitCode = isGood ? 0 : 1
