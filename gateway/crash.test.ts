import assert from 'node:assert/strict'
import { type ChildProcess, fork } from 'node:child_process'
import { randomInt } from 'node:crypto'
import { once } from 'node:events'
import { type TestContext, test } from 'node:test'
import { setTimeout as pause } from 'node:timers/promises'
import { supervise } from '../src/process/supervisor.ts'
import { atEnd } from '../test/support/at-end.ts'
import {
  account,
  ask,
  burnIntent,
  deposit,
  ended,
  type GatewayBench,
  onChain,
  openBench,
  paymentBody,
  relayerKey,
  seller,
  token,
  untilBalance,
} from '../test/support/gateway.ts'
import { publicClient, relayer, usdc, usdcBalance } from '../test/support/sandbox-chain.ts'
import { untilFits } from '../test/support/until.ts'
import { type FailpointName, failpointNames } from './failpoints.ts'
import type { GatewayReady, GatewaySettings } from './start.ts'

// The gateway as in production, in its own process, which is killed at the worst points and restarted.

const payer = account('payer')
const module = new URL('start.ts', import.meta.url)

function settingsFor({ databaseUrl, chain, wallet }: GatewayBench): GatewaySettings {
  return {
    host: '127.0.0.1',
    port: 0,
    databaseUrl,
    chainRpcUrl: chain.url,
    usdcAddress: usdc,
    gatewayWalletAddress: wallet,
    relayerKey,
    batchMs: 20,
    pollMs: 20,
    withdrawalMin: '1',
    payees: [seller.address],
    token,
    resendMs: 50,
    logLevel: 'silent',
  }
}

for (const name of failpointNames) {
  for (const reach of name === 'events_applied' || name === 'transfer_stored' ? [1, 2] : [1]) {
    test(`a gateway killed at ${name}, passing ${reach}, loses nothing and pays nothing twice`, async (t) => {
      const bench = await openBench(t)
      const { url, exits } = await startArmed(t, bench, { name, reach })
      await deposit(bench, payer, 100_000n)
      await untilBalance(url, payer.address, '0.1')
      const bodies = await Promise.all(Array.from({ length: 6 }, () => paymentBody(bench.wallet, payer)))
      const ids = await Promise.all(bodies.map((body) => settleForSure(url, body)))
      for (const id of ids) assert.equal((await ended(url, id)).status, 'completed')
      const intents = [await burnIntent(bench.wallet, payer, { value: 4_000n })]
      const { transferId } = await retried(() => ask(url, '/v1/transfer?enableForwarder=true', intents))
      await untilFits(
        () => retried(() => ask(url, `/v1/transfer/${transferId}`)),
        ({ status }) => status === 'finalized',
      )
      assert.deepEqual(exits, ['SIGKILL'], 'it died there, and only there')
      assert.equal(await onChain(bench, seller.address), 6_000n)
      assert.equal(await onChain(bench, payer.address), 90_000n)
      assert.equal(await usdcBalance(bench.chain.url, account('owner').address), 4_000n)
      await untilBalance(url, payer.address, '0.09')
      await assertBooks(bench)
    })
  }
}

test('a gateway killed again and again under load settles every payment it took, once', async (t) => {
  const bench = await openBench(t)
  const settings = { ...settingsFor(bench), batchMs: 30 }
  await deposit(bench, payer, 1_000_000n)
  let running = await start(t, settings)
  await untilBalance(running.url, payer.address, '1')
  const bodies = await Promise.all(
    Array.from({ length: 90 }, (_, index) => paymentBody(bench.wallet, payer, { value: BigInt(index + 1) })),
  )
  const ids: string[] = []
  for (let index = 0; index < bodies.length; index += 1) {
    // At a random point of its work.
    if (index % 15 === 7) {
      running.child.kill('SIGKILL')
      // On another port: this one may be taken meanwhile.
      running = await start(t, settings)
    }
    ids.push(await settleForSure(running.url, bodies[index]!))
  }
  for (const id of ids) assert.equal((await ended(running.url, id)).status, 'completed')
  assert.equal(await onChain(bench, seller.address), (90n * 91n) / 2n)
  await assertBooks(bench)
})

/** A supervised gateway that dies once, at the failpoint. */
async function startArmed(t: TestContext, bench: GatewayBench, armed: { name: FailpointName; reach: number }) {
  // It restarts on its port. Below the ephemeral range no other process is given that port meanwhile.
  const settings = { ...settingsFor(bench), port: randomInt(20_000, 30_000) }
  const exits: string[] = []
  const child = await supervise<GatewaySettings, GatewayReady>({
    name: 'the gateway',
    module,
    settings: (previous) =>
      previous === undefined ? { ...settings, failpoint: armed } : { ...settings, port: previous.port },
    onRestart: (exit) => exits.push(exit),
  })
  atEnd(t, () => child.stop())
  return { url: child.ready.url, exits }
}

async function start(
  t: TestContext,
  settings: GatewaySettings,
): Promise<GatewayReady & { readonly child: ChildProcess }> {
  const child = fork(module)
  atEnd(t, () => child.kill('SIGKILL'))
  child.send(settings)
  const [ready] = (await once(child, 'message')) as [GatewayReady]
  return { ...ready, child }
}

/** A careful client: when the answer is lost, it queries by payer and nonce, and only then sends the same payment again. */
async function settleForSure(url: string, body: Awaited<ReturnType<typeof paymentBody>>): Promise<string> {
  const { from, nonce } = body.paymentPayload.payload.authorization
  for (;;) {
    const answer = await ask(url, '/v1/x402/settle', body).catch(() => undefined)
    if (answer?.body.success) return answer.body.transaction
    const { transfers } = await retried(() => ask(url, `/v1/x402/transfers?from=${from}&nonce=${nonce}`))
    if (transfers.length > 0) return transfers[0].id
  }
}

async function retried(question: () => ReturnType<typeof ask>) {
  for (;;) {
    const answer = await question().catch(() => undefined)
    if (answer !== undefined && answer.status < 500) return answer.body
    await pause(20)
  }
}

/** Nothing is reserved any more, each settled batch is on chain once, and each nonce of the relayer is accounted for. */
async function assertBooks({ database, chain }: GatewayBench): Promise<void> {
  const count = await publicClient(chain.url).getTransactionCount({ address: relayer.address })
  const [books] = await untilFits(
    () =>
      database.query<{ pending: bigint; open: bigint; sent: bigint }>(
        `select (select coalesce(sum(pending), 0)::int8 from gateway.balances) as pending,
                (select count(*) from gateway.calls where state = 'sent') as open,
                (select count(*) from gateway.calls where state in ('succeeded', 'reverted')) as sent`,
      ),
    ([found]) => found!.open === 0n,
  )
  assert.deepEqual(books, { pending: 0n, open: 0n, sent: BigInt(count) })
}
