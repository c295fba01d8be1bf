import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createPublicClient, http, toFunctionSelector } from 'viem'
import { settlementGatewayAbi } from '../../contracts/generated/SettlementGateway.abi.ts'
import { startMoneyService } from '../support/money-service.ts'
import { untilFits } from '../support/until.ts'
import { openX402Wallet, type X402Wallet } from '../support/x402-wallet.ts'

// Each transfer of a wallet costs the relayer gas. Whatever a wallet does, it pays at least as much: in charges, or in credit that is not
// paid back. Every payment is waited for, so that it is alone in its batch, where it costs most.

type Body = { readonly max_tokens: number; readonly messages: readonly object[] }
type Balance = Record<`${'credit' | 'charged' | 'paid' | 'refunded'}_atomic`, string> & {
  readonly refunds: readonly { readonly state: string }[]
}

const settleBatch = toFunctionSelector(
  settlementGatewayAbi.find((entry) => 'name' in entry && entry.name === 'settleBatch') as never,
)
const weiPerAtomic = 1_000_000_000_000n

test('the worst wallet costs the relayer at most what it pays', { timeout: 600_000 }, async (t) => {
  const money = await startMoneyService(t)
  const { database, publicUrl } = money.service
  const base = `${publicUrl}/x402/v1`
  const node = createPublicClient({ transport: http(money.money.rpcUrl), cacheTime: 0 })
  const bodyOf = (maxTokens: number): Body => ({
    max_tokens: maxTokens,
    messages: [{ role: 'user', content: 'Say penny.' }],
  })
  const post = (path: string, body: object, headers: Record<string, string> = {}, send: typeof fetch = fetch) =>
    send(`${base}${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: JSON.stringify(body),
    })
  const chat = '/chat/completions'
  const balanceOf = async (wallet: X402Wallet): Promise<Balance> =>
    (await (await wallet.signingIn()(`${base}/balance`)).json()) as Balance
  /** Signs what the 402 asks of an unknown wallet: the whole quote. */
  async function payWhole(wallet: X402Wallet, body: Body): Promise<void> {
    const answer = await post(chat, body, { 'payment-signature': await wallet.sign(await post(chat, body)) })
    assert.equal(answer.status, 200, await answer.text())
  }
  async function settled(): Promise<void> {
    await untilFits(
      () => database.query(`select from transfers where kind = 'x402' and state not in ('confirmed', 'failed')`),
      (open) => open.length === 0,
    )
  }
  async function refund(wallet: X402Wallet, body: object = {}): Promise<number> {
    await settled()
    const { status } = await post('/refund', body, {}, wallet.signingIn())
    await untilFits(
      () => balanceOf(wallet),
      ({ refunds }) => refunds.every(({ state }) => state === 'confirmed'),
    )
    return status
  }
  const quoteOf = async (maxTokens: number) =>
    BigInt(((await (await post('/quote', bodyOf(maxTokens))).json()) as { quote_atomic: string }).quote_atomic)
  const inputCost = (await quoteOf(100)) - 500n

  const attacks: Readonly<Record<string, (wallet: X402Wallet) => Promise<unknown>>> = {
    'pays although its credit covers the request': async (wallet) => {
      for (let count = 0; count < 6; count += 1) {
        await payWhole(wallet, bodyOf(1_000))
        await settled()
      }
    },
    'asks for a little more than its credit each time': async (wallet) => {
      for (let count = 0; count < 6; count += 1) {
        const credit = BigInt((await balanceOf(wallet)).credit_atomic)
        const body = bodyOf(Math.max(16, Number((credit - inputCost) / 5n) + 1))
        const answer = await post(chat, body, {}, wallet.netting())
        assert.equal(answer.status, 200, await answer.text())
        await settled()
      }
    },
    'pays many requests concurrently': (wallet) =>
      Promise.all(Array.from({ length: 12 }, () => payWhole(wallet, bodyOf(400)))),
    'pays much and is refunded, in turn': async (wallet) => {
      for (let count = 0; count < 3; count += 1) {
        await payWhole(wallet, bodyOf(40_000))
        assert.equal(await refund(wallet), 202)
      }
    },
    'is refunded in parts': async (wallet) => {
      await payWhole(wallet, bodyOf(64_000))
      for (let count = 0; count < 3; count += 1) await refund(wallet, { amount: '0.1' })
    },
  }

  for (const [name, attack] of Object.entries(attacks)) {
    await t.test(`a wallet that ${name}`, async (t) => {
      const wallet = await openX402Wallet(money, '1')
      const first = (await node.getBlockNumber()) + 1n
      await attack(wallet)
      await refund(wallet)
      const last = await balanceOf(wallet)
      const gas = await relayerGas(first)
      const kept = BigInt(last.paid_atomic) - BigInt(last.refunded_atomic)
      const facts = `gas ${gas}, kept ${kept}: ${last.charged_atomic} charged, ${last.credit_atomic} credit; paid ${last.paid_atomic}`
      t.diagnostic(facts)
      assert.ok(gas > 0n && gas <= kept, facts)
    })
  }

  /** What the gateway's relayer paid for its transactions since that block, by their receipts, in atomic USDC. */
  async function relayerGas(first: bigint): Promise<bigint> {
    const last = await node.getBlockNumber()
    let wei = 0n
    for (let blockNumber = first; blockNumber <= last; blockNumber += 1n) {
      const { transactions } = await node.getBlock({ blockNumber, includeTransactions: true })
      for (const { hash } of transactions.filter((each) => each.input.startsWith(settleBatch))) {
        const { gasUsed, effectiveGasPrice } = await node.getTransactionReceipt({ hash })
        wei += gasUsed * effectiveGasPrice
      }
    }
    return wei / weiPerAtomic
  }
})
