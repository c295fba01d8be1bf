import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { sandboxClient } from '../../sandbox/client.ts'
import { x402FailpointNames } from '../../src/process/failpoints.ts'
import { readSettlementEndpoints } from '../../src/settlement/settlement-endpoints.ts'
import { atEnd } from '../support/at-end.ts'
import { gatewayOf, type MoneyService } from '../support/money-service.ts'
import { preparePenny } from '../support/penny-command.ts'
import { untilFits } from '../support/until.ts'
import { openX402Wallet } from '../support/x402-wallet.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))

type Balance = Record<
  'credit_atomic' | 'held_atomic' | 'charged_atomic' | 'paid_atomic' | 'refunded_atomic',
  string
> & {
  readonly refunds: readonly { readonly state: string }[]
}

/** As a user pastes it, with the packages of this folder. */
async function paste(program: string): Promise<string> {
  const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
    cwd: root,
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const [text] = await Promise.all([child.stdout.toArray(), once(child, 'exit')])
  return text.join('')
}

test('the program of penny x402 demo works when pasted; its wallet loses nothing when the service is killed while it pays', async (t) => {
  const penny = preparePenny()
  atEnd(t, () => penny.remove())
  await penny.start()
  const demo = await penny.json<Record<'program' | 'refund_program', string> & { readonly private_key: `0x${string}` }>(
    ['x402', 'demo'],
  )
  const { program, refund_program: refundProgram, private_key: key } = demo
  assert.match(await paste(program), /sandbox model/)
  const money = () =>
    ({ money: readSettlementEndpoints(penny.dataDir), sandbox: sandboxClient(penny.dataDir) }) as MoneyService
  const base = () => penny.sandbox().base_url.replace(/\/v1$/, '/x402/v1')
  const firstBase = base()
  const walletNow = () => openX402Wallet(money(), '0', key)
  const balance = async () => (await (await (await walletNow()).signingIn()(`${base()}/balance`)).json()) as Balance
  const first = await balance()
  assert.equal(BigInt(first.credit_atomic), BigInt(first.paid_atomic) - BigInt(first.charged_atomic))
  // The second time, the wallet pays what its credit does not cover: the cost of the first request, and at least 0.002 USDC.
  assert.match(await paste(program), /sandbox model/)
  const second = BigInt(first.charged_atomic) > 2_000n ? BigInt(first.charged_atomic) : 2_000n
  assert.equal(BigInt((await balance()).paid_atomic), BigInt(first.paid_atomic) + second)

  // A start that recovers from one death is already armed for the next one.
  const armed = x402FailpointNames.map((name) => ({ FAILPOINT: `${name}:1` }))
  await penny.stop()
  let service = await penny.start(armed[0])
  for (const next of [...armed.slice(1), {}]) {
    const exited = once(service, 'exit')
    // More than the wallet's credit covers: only then is a payment submitted.
    const maxTokens = Number(BigInt((await balance()).credit_atomic) / 5n) + 1_000
    const body = JSON.stringify({ max_tokens: maxTokens, messages: [{ role: 'user', content: 'What is a penny?' }] })
    const request = { method: 'POST', headers: { 'content-type': 'application/json' }, body }
    await assert.rejects((await walletNow()).netting()(`${base()}/chat/completions`, request))
    await exited
    service = await penny.start(next)
    const wallet = await walletNow()
    // Payments that the gateway accepted are credit, and nothing stays held.
    await untilFits(
      balance,
      ({ paid_atomic: paid, credit_atomic: credit, charged_atomic: charged, held_atomic: held }) => {
        return held === '0' && BigInt(credit) === BigInt(paid) - BigInt(charged)
      },
    )
    const left = await gatewayOf(money(), wallet.address)
    await untilFits(balance, ({ paid_atomic: paid }) => BigInt(paid) >= 1_000_000n - left)
  }
  const wallet = await walletNow()
  // Each start of the test has a port of its own.
  assert.match(await paste(refundProgram.replaceAll(firstBase, base())), /x402\.refund/)
  const { paid_atomic: paid, refunded_atomic: refunded } = await untilFits(
    balance,
    ({ refunds }) => refunds[0]?.state === 'confirmed',
  )
  await untilFits(
    () => gatewayOf(money(), wallet.address),
    (left) => left === 1_000_000n - BigInt(paid) + BigInt(refunded),
  )
})
