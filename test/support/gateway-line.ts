import assert from 'node:assert/strict'
import type { TestContext } from 'node:test'
import { settlementGatewayAbi } from '../../contracts/generated/SettlementGateway.abi.ts'
import type { AlarmCode } from '../../gateway/alarm.ts'
import type { GatewayOptions } from '../../gateway/server.ts'
import { format } from '../../src/money/usdc.ts'
import {
  account,
  deposit,
  ended,
  type GatewayBench,
  onChain,
  openBench,
  paymentBody,
  seller,
  settle,
  untilBalance,
} from './gateway.ts'
import { type RpcFault, type RpcProxy, startRpcProxy } from './rpc-proxy.ts'
import { publicClient } from './sandbox-chain.ts'
import { untilFits } from './until.ts'

export const payer = account('payer')

/** A gateway whose node can be made to fail, and a payer. */
export type Line = {
  readonly bench: GatewayBench
  readonly proxy: RpcProxy
  readonly url: string
  stop(): Promise<void>
  pay(count: number, value?: bigint): Promise<string[]>
}

export async function openLine(
  t: TestContext,
  options: Partial<GatewayOptions> = {},
  funds = 1_000_000n,
): Promise<Line> {
  const bench = await openBench(t)
  const proxy = await startRpcProxy(t, bench.chain.url)
  const { url, stop } = await bench.start({ chainRpcUrl: proxy.url, resendMs: 50, replaceMs: 60_000, ...options })
  if (funds > 0n) {
    await deposit(bench, payer, funds)
    await untilBalance(url, payer.address, format(funds))
  }
  const pay = async (count: number, value = 1_000n) => {
    const bodies = await Promise.all(Array.from({ length: count }, () => paymentBody(bench.wallet, payer, { value })))
    return Promise.all(bodies.map((body) => settle(url, body)))
  }
  return { bench, proxy, url, stop, pay }
}

export async function untilAlarm({ alarms }: GatewayBench, code: AlarmCode): Promise<void> {
  await untilFits(
    async () => alarms.map((alarm) => alarm.code),
    (codes) => codes.includes(code),
  )
}

/** All are completed, and the chain moved exactly their sum. */
export async function assertPaidOnce({ bench, url }: Line, ids: readonly string[], total: bigint): Promise<void> {
  for (const id of ids) assert.equal((await ended(url, id)).status, 'completed')
  assert.equal(await onChain(bench, seller.address), total)
  assert.equal(await onChain(bench, payer.address), 1_000_000n - total)
  await untilBalance(url, payer.address, format(1_000_000n - total))
}

export async function batchesOnChain({ chain, wallet }: GatewayBench): Promise<bigint> {
  return publicClient(chain.url).readContract({
    address: wallet,
    abi: settlementGatewayAbi,
    functionName: 'lastBatchId',
  })
}

/** A fault of one method; the others answer as they do. */
export const only =
  (method: string, fault: RpcFault): RpcFault =>
  (call, forward) =>
    call.method === method ? fault(call, forward) : forward()

export const away: RpcFault = async () => 'hang up'

/** Nothing is reserved, and nothing is in progress. */
export async function assertNothingOpen({ database }: GatewayBench): Promise<void> {
  await untilFits(
    () =>
      database.query<{ pending: bigint; open: bigint }>(
        `select (select coalesce(sum(pending), 0)::int8 from gateway.balances) as pending,
                (select count(*) from gateway.calls where state = 'sent') as open`,
      ),
    ([books]) => books!.pending === 0n && books!.open === 0n,
  )
}
