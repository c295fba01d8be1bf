import assert from 'node:assert/strict'
import { fork } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { type TestContext, test } from 'node:test'
import fc from 'fast-check'
import { atEnd } from '../../test/support/at-end.ts'
import { exampleCount, seedOf } from '../../test/support/examples.ts'
import { accountsOfRequests, offPolicyRequest } from '../../test/support/off-policy-requests.ts'
import {
  createCustodian,
  keys,
  masterKey,
  ownerAddress,
  signerSettings,
  temporaryFolder,
  terms,
  transferRequest,
  withdrawalRequest,
} from '../../test/support/signing.ts'
import type { ChildRefusal } from '../process/child.ts'
import { supervise } from '../process/supervisor.ts'
import { fingerprintOf } from './master-key.ts'
import { addressOfKey } from './secp256k1.ts'
import { askCustodian, createSigner, type Signer } from './signer.ts'
import { SignerLine, SignerUnavailableError } from './signer-line.ts'
import type { SignerReady, SignerSettings } from './signer-process.ts'
import { signerSocketPath } from './signer-socket.ts'
import { batchMax } from './signing-request.ts'
import { payOutMax } from './signing-terms.ts'

const module = new URL('./signer-process.ts', import.meta.url)
const account = '0190a1b2-c3d4-7000-8000-000000000001'

test('the signer process gives the signatures that the keys give, whatever they are for', async (t) => {
  const { signer, ready } = await startSigner(t)
  const here = createSigner({ ask: askCustodian(createCustodian(t)), onFault: assert.ifError })
  assert.equal(ready.seller, terms.seller)
  assert.equal(ready.relayer, keys.ofRole('relayer').address)
  assert.equal(await signer.addressOf(account), await here.addressOf(account))
  const batch = authorizations(100)
  assert.deepEqual(await signer.signEach(batch), await here.signEach(batch))
  const [giveBack, deposit] = [transferRequest('return', { account }), transferRequest('deposit', { account })]
  assert.equal(await signer.sign(giveBack), await here.sign(giveBack))
  assert.equal(await signer.sign(deposit), await here.sign(deposit))
  const withdrawal = withdrawalRequest(account, randomUUID())
  for (const either of [signer, here]) await either.registerOwner(account, ownerAddress, true)
  assert.equal(await signer.sign(withdrawal), await here.sign(withdrawal))
})

test('refunds count against the payout limits, not against the limits of payments to the seller', async (t) => {
  const most = { accountMax: payOutMax.toString(), totalMax: payOutMax.toString() }
  const hourlyLimits = { authorizations: { accountMax: '1000', totalMax: '1000' }, payingOut: most, refills: most }
  const { signer } = await startSigner(t, {}, { hourlyLimits })
  await signer.registerOwner(account, ownerAddress, true)
  await signer.sign(transferRequest('return', { account, value: payOutMax }))
  await signer.sign(withdrawalRequest(account, randomUUID(), payOutMax))
  const above = transferRequest('return', { account, sequence: 1n, value: payOutMax + 1n })
  await assert.rejects(signer.sign(above), { reason: 'value_out_of_range' })
})

test('only its own user reaches the signer, and nothing it writes holds a key', async (t) => {
  const { dataDir, signer } = await startSigner(t)
  await signer.registerOwner(account, ownerAddress, true)
  const mode = (path: string) => statSync(join(dataDir, path)).mode & 0o777
  assert.equal(mode('signer'), 0o700)
  assert.equal(mode('signer/sign.sock'), 0o600)
  assert.equal(mode('signer/owners.journal'), 0o600)
  const secrets = [masterKey, keys.ofAccount(account).privateKey, keys.ofRole('seller').privateKey]
  const files = readdirSync(dataDir, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile())
  for (const { parentPath, name } of files) {
    const content = readFileSync(join(parentPath, name), 'latin1')
    for (const secret of secrets) assert.ok(!content.includes(secret.toString('hex')), name)
  }
})

// The part of a batch that the dead signer had done is done again, with the same result.
test('a signer killed in the middle of its work is restarted, and every signature is the same to the byte', async (t) => {
  const { signer, ready } = await startSigner(t)
  const here = createSigner({ ask: askCustodian(createCustodian(t)), onFault: assert.ifError, checkEvery: 1_000 })
  const batch = authorizations(20 * batchMax)
  const outcomes = batch.map((request) => signer.signEach([request]))
  await outcomes[batchMax]
  process.kill(ready.pid, 'SIGKILL')
  assert.deepEqual((await Promise.all(outcomes)).flat(), await here.signEach(batch))
})

test('a signer that hangs is given up after the wait, and asked again when it is back', async (t) => {
  const { signer, ready } = await startSigner(t, { waitMsMax: 200, silentMsMax: 100 })
  await untilAnswered(() => signer.signEach(authorizations(1)))
  process.kill(ready.pid, 'SIGSTOP')
  try {
    await assert.rejects(signer.signEach(authorizations(40)), SignerUnavailableError)
  } finally {
    process.kill(ready.pid, 'SIGCONT')
  }
  const outcomes = await untilAnswered(() => signer.signEach(authorizations(40)))
  assert.ok(outcomes.every((outcome) => 'signature' in outcome))
})

test('of thousands of requests against the policy sent to its socket the signer signs none', async (t) => {
  const { dataDir, signer } = await startSigner(t)
  for (const id of accountsOfRequests) await signer.registerOwner(id, ownerAddress, true)
  // SIGNER_BATCHES=31250 for a million requests, TEST_SEED to repeat a run.
  const batches = 64
  const rounds = Math.ceil(exampleCount('SIGNER_BATCHES', { short: batches, full: batches }) / batches)
  const firstSeed = seedOf('TEST_SEED')
  for (let seed = firstSeed; seed < firstSeed + rounds; seed += 1) {
    const requests = fc.sample(offPolicyRequest, { numRuns: batches * batchMax, seed })
    const socket = await openSocket(t, dataDir)
    socket.write(batchLines(requests))
    const answer = await readBatches(socket, batches)
    assert.equal(answer.match(/"refusal"/g)?.length, requests.length, `seed ${seed}`)
    assert.doesNotMatch(answer, /signature|[0-9a-f]{128}/, `seed ${seed}`)
  }
  const [outcome] = await signer.signEach(authorizations(1))
  assert.ok(outcome !== undefined && 'signature' in outcome)
})

test('a client that sends garbage is disconnected, and others are not affected', async (t) => {
  const { dataDir, signer } = await startSigner(t)
  const one = '{"operation":"address","account":"0190a1b2-c3d4-7000-8000-000000000001"}'
  const rubbish = [
    'rubbish\n',
    '\n',
    'null\n',
    '[]\n',
    '{"id":"1","requests":[]}\n',
    '{"id":1,"requests":{}}\n',
    `{"id":1,"requests":[${Array(batchMax + 1).fill(one)}]}\n`,
    'x'.repeat(300_000),
    '\u0000\u0016\u0003\u0001',
  ]
  for (const line of rubbish) {
    const socket = await openSocket(t, dataDir)
    socket.end(line)
    assert.equal(await text(socket).catch(() => ''), '', line.slice(0, 30))
  }
  const [outcome] = await signer.signEach(authorizations(1))
  assert.ok(outcome !== undefined && 'signature' in outcome)
})

test('only the relayer’s key can be read, and only if it was requested', async (t) => {
  const { ready } = await startSigner(t)
  assert.deepEqual(Object.keys(ready).sort(), ['issuer', 'masterKeyFingerprint', 'pid', 'relayer', 'seller'])
  const dataDir = temporaryFolder(t)
  const settings = () => ({ ...signerSettings(dataDir), handOutRelayerKey: true })
  const child = await supervise<SignerSettings, SignerReady>({ name: 'the signer', module, settings })
  atEnd(t, () => child.stop())
  assert.equal(addressOfKey(Buffer.from(child.ready.relayerKey!.slice(2), 'hex')), child.ready.relayer)
})

test('a signer with another master key than before does not start, and says why in one line', async (t) => {
  const { dataDir, stop } = await startSigner(t)
  await stop()
  const { code, said } = await failToStart({ ...signerSettings(dataDir), masterKey: { value: '33'.repeat(32) } })
  assert.equal(code, 1)
  assert.match(said, /^MASTER_KEY \(fingerprint [0-9a-f]{32}\) is not the key .+ Set the previous key\.$/)
})

test('a signer with a key file reads the master key from it at each start', async (t) => {
  const dataDir = temporaryFolder(t)
  const file = join(temporaryFolder(t), 'master-key')
  writeFileSync(file, `${'33'.repeat(32)}\n`)
  const refused = Promise.withResolvers<string>()
  const child = await supervise<SignerSettings, SignerReady>({
    name: 'the signer',
    module,
    settings: () => ({ ...signerSettings(dataDir), masterKey: { file } }),
    onRestart: (exit) => exit !== 'SIGKILL' && refused.resolve(exit),
  })
  atEnd(t, () => child.stop())
  assert.equal(child.ready.masterKeyFingerprint, fingerprintOf(Buffer.from('33'.repeat(32), 'hex')))
  writeFileSync(file, '44'.repeat(32))
  process.kill(child.ready.pid, 'SIGKILL')
  assert.match(await refused.promise, /^MASTER_KEY \(fingerprint \w+\) is not the key/)
})

test('a second signer on the same folder does not start', async (t) => {
  const { dataDir, signer } = await startSigner(t)
  const { code, said } = await failToStart(signerSettings(dataDir))
  assert.equal(code, 1)
  assert.match(said, /^Another signer runs on .+$/)
  const [outcome] = await signer.signEach(authorizations(1))
  assert.ok(outcome !== undefined && 'signature' in outcome)
})

type Started = {
  readonly dataDir: string
  readonly signer: Signer
  readonly ready: SignerReady
  stop(): Promise<void>
}

async function startSigner(
  t: TestContext,
  lineOptions: { waitMsMax?: number; silentMsMax?: number } = {},
  changes: Partial<SignerSettings> = {},
): Promise<Started> {
  const dataDir = temporaryFolder(t)
  const settings = () => ({ ...signerSettings(dataDir), ...changes })
  const child = await supervise<SignerSettings, SignerReady>({ name: 'the signer', module, settings })
  const line = new SignerLine({ dataDir, ...lineOptions })
  const stop = async () => {
    line.close()
    await child.stop()
  }
  atEnd(t, stop)
  const signer = createSigner({ ask: (request) => line.ask(request), onFault: assert.ifError })
  return { dataDir, signer, ready: child.ready, stop }
}

async function failToStart(settings: SignerSettings): Promise<{ readonly code: number; readonly said: string }> {
  const child = fork(module, { stdio: ['ignore', 'inherit', 'pipe', 'ipc'] })
  child.send(settings)
  const [[refusal], printed, [code]] = await Promise.all([
    once(child, 'message') as Promise<[ChildRefusal]>,
    text(child.stderr!),
    once(child, 'exit'),
  ])
  assert.equal(printed, '')
  const said = refusal.refused
  return { code, said }
}

/** For a few accounts at one time, so that equal requests are identical. */
function authorizations(count: number) {
  const decidedAt = new Date()
  return Array.from({ length: count }, (_, index) =>
    transferRequest('authorization', {
      account: account.replace(/.$/, String(index % 5)),
      sequence: BigInt(index),
      value: BigInt(1 + index),
      decidedAt,
    }),
  )
}

async function untilAnswered<Result>(ask: () => Promise<Result>): Promise<Result> {
  for (;;) {
    try {
      return await ask()
    } catch (error) {
      if (!(error instanceof SignerUnavailableError)) throw error
    }
  }
}

async function openSocket(t: TestContext, dataDir: string): Promise<Socket> {
  const socket = connect(await signerSocketPath(dataDir))
  atEnd(t, () => socket.destroy())
  socket.on('error', () => {})
  await once(socket, 'connect')
  return socket
}

function batchLines(requests: readonly string[]): string {
  const lines: string[] = []
  for (let start = 0; start < requests.length; start += batchMax) {
    lines.push(`{"id":${start},"requests":[${requests.slice(start, start + batchMax).join(',')}]}\n`)
  }
  return lines.join('')
}

async function readBatches(socket: Socket, count: number): Promise<string> {
  let answer = ''
  for await (const chunk of socket) {
    answer += chunk
    if (answer.split('\n').length > count) break
  }
  return answer
}
