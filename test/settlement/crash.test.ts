import assert from 'node:assert/strict'
import type { ChildProcess } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { findViolations } from '../../src/ledger/audit.ts'
import { listDeposits } from '../../src/ledger/deposits.ts'
import { readLiabilities } from '../../src/ledger/liabilities.ts'
import { findPayout } from '../../src/ledger/payouts.ts'
import { findWithdrawal } from '../../src/ledger/withdrawals.ts'
import { parse } from '../../src/money/usdc.ts'
import { everySettlementFailpoint, settlementFailpointNames } from '../../src/process/failpoints.ts'
import { verifyLiabilityProof } from '../../src/receipts/liability-proof.ts'
import { chainOptions, openChain } from '../../src/settlement/chain.ts'
import { Funds } from '../../src/settlement/funds.ts'
import { createGatewayClient } from '../../src/settlement/gateway-client.ts'
import { requestPayout } from '../../src/settlement/payout.ts'
import { checkSolvency, isSolvent } from '../../src/settlement/solvency.ts'
import { receiptCrypto } from '../../src/signer/receipt-crypto.ts'
import { openSigner } from '../../src/signer/signer.ts'
import { atEnd } from '../support/at-end.ts'
import {
  accountNow,
  ask,
  gatewayOf,
  type MoneyAccount,
  type MoneyService,
  openWallet,
  startMoneyService,
  sums,
  usdcOf,
} from '../support/money-service.ts'
import { testDatabase } from '../support/postgres.ts'
import { address } from '../support/signing.ts'
import { until, untilFits } from '../support/until.ts'
import { openX402Wallet } from '../support/x402-wallet.ts'

// Each process of the money line is killed as by a power cut, and the whole service too; afterwards every sum is exact.
// SETTLEMENT_KILLS=all also kills settlement at each of its places alone.

const operator = address('0x90f79bf6eb2c4f870365e785982e1f101e93b906')
function openFunds(t: TestContext, money: MoneyService): Funds {
  const signer = openSigner({ dataDir: money.dataDir, onFault: assert.ifError })
  atEnd(t, () => signer[Symbol.dispose]())
  return new Funds({ database: money.service.database, signer, withdrawalMin: parse('0.1') })
}

/** A deposit by the token and one of plain coin, requests, a withdrawal of everything with its credit, a payout: all that the settlement process does. */
async function passThrough(t: TestContext, money: MoneyService): Promise<void> {
  const { database } = money.service
  const account = await money.openAccount()
  const wallet = await openWallet(money, '2')
  const owner = await openWallet(money, '0')
  await wallet.send(account.address, 1_000_000n)
  await wallet.sendNatively(account.address, 1_000_000n)
  await until(async () => (await accountNow(money, account)).spendable === 2_000_000n)
  const arrived = await listDeposits(database, { partition: account.partition, accountId: account.id }, { limit: 10 })
  assert.deepEqual(
    arrived.map(({ amount, state, sender }) => [amount, state, sender]),
    Array(2).fill([1_000_000n, 'credited', wallet.address]),
  )
  const answers = await Promise.all(Array.from({ length: 5 }, () => ask(money, account)))
  assert.deepEqual([...new Set(answers.map(({ status }) => status))], [200])

  const funds = openFunds(t, money)
  await funds.registerOwner(account, owner.address, true)
  const { spendable, credit } = await accountNow(money, account)
  assert.ok(credit > 0n, 'some of it is credit')
  const id = randomUUID()
  await funds.withdraw(account, id, spendable)
  await until(async () => (await findWithdrawal(database, account.partition, account.id, id))?.state === 'confirmed')
  assert.equal(await usdcOf(money, owner.address), spendable)
  await payOut(t, money)
  await assertExact(money, account)
  assert.equal(await usdcOf(money, owner.address), 2_000_000n - (await sums(money, account)).charged)
  await refundWallet(money)
}

/** A wallet pays over x402 and gets back what it did not use. */
async function refundWallet(money: MoneyService): Promise<void> {
  const base = `${money.service.publicUrl}/x402/v1`
  const wallet = await openX402Wallet(money, '0.1')
  const headers = { 'content-type': 'application/json' }
  const body = JSON.stringify({ max_tokens: 8_000, messages: [{ role: 'user', content: 'What is a penny?' }] })
  assert.equal((await wallet.paying(`${base}/chat/completions`, { method: 'POST', headers, body })).status, 200)
  assert.equal((await wallet.signingIn()(`${base}/refund`, { method: 'POST' })).status, 202)
  const left = await until(async () => {
    const answer = await wallet.signingIn()(`${base}/balance`)
    const { refunds, paid_atomic: paid, refunded_atomic: refunded } = (await answer.json()) as Balance
    return refunds[0]?.state === 'confirmed' && 100_000n - BigInt(paid) + BigInt(refunded)
  })
  await until(async () => (await gatewayOf(money, wallet.address)) === left)
  // The processes that were killed have signed a snapshot of what they owe.
  const proof = await until(async () => {
    const answer = await wallet.signingIn()(`${base}/liabilities/proof`)
    return answer.status === 200 && (answer.json() as Promise<object>)
  })
  const wrong = (await verifyLiabilityProof(proof, receiptCrypto)).filter(({ ok }) => !ok)
  assert.ok(
    wrong.every(({ detail }) => detail.includes('has no leaf')),
    JSON.stringify(wrong),
  )
  assert.deepEqual(await findViolations(money.service.database), [])
}

type Balance = {
  readonly refunds: readonly { readonly state: string }[]
  readonly paid_atomic: string
  readonly refunded_atomic: string
}

async function payOut(t: TestContext, money: MoneyService): Promise<void> {
  const { gatewayUrl, gatewayToken, terms } = money.money
  const { database } = money.service
  const gatewayClient = createGatewayClient({ url: gatewayUrl, token: gatewayToken, domain: terms.gatewayDomain })
  atEnd(t, () => gatewayClient.close())
  const before = await usdcOf(money, operator)
  const earned = await gatewayOf(money, terms.seller)
  const read = () => gatewayClient.balance(terms.seller)
  const id = await until(() => requestPayout(database, 'all', operator, read).catch(() => undefined))
  await until(async () => (await findPayout(database, id))?.state === 'confirmed')
  assert.equal((await usdcOf(money, operator)) - before, earned)
}

/** Nothing is open, the ledger balances, and the chain has what they say. */
async function assertExact(money: MoneyService, account: MoneyAccount): Promise<void> {
  const { database } = money.service
  await until(async () => {
    const { open, charged, paid } = await sums(money, account)
    return open === 0n && charged === paid
  })
  assert.equal(await gatewayOf(money, account.address), (await accountNow(money, account)).spendable)
  assert.equal(await usdcOf(money, account.address), 0n)
  assert.deepEqual(await findViolations(database), [])
  const { amounts, booked } = await readLiabilities(database)
  assert.equal(
    amounts.reduce((sum, amount) => sum + amount, 0n),
    booked,
  )
  const chain = await openChain(chainOptions(money.money))
  const report = await checkSolvency({ database, chain, seller: money.money.terms.seller })
  assert.ok(isSolvent(report), JSON.stringify(report))
}

/** Processes that are not ours and never will be, so that only new ones are read. */
let strangers: ReadonlySet<number> = new Set()

function ownChildren(): number[] {
  const pids = readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
  const children = pids.filter((pid) => !strangers.has(pid) && parentOf(pid) === process.pid)
  strangers = new Set(pids.filter((pid) => !children.includes(pid)))
  return children
}

function parentOf(pid: number): number | undefined {
  try {
    return Number(/^PPid:\s*(\d+)$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1])
  } catch {
    return undefined
  }
}

function titleOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0')[0]!.trim()
  } catch {
    return ''
  }
}

function settlementPid(): number | undefined {
  return ownChildren().find((pid) => titleOf(pid) === 'penny-settle')
}

test('settlement killed between any two of its steps: the deposit, the payments, the withdrawal and the payout are exact', async (t) => {
  const environment = { FAILPOINT: everySettlementFailpoint, PAYOUT_ADDRESS: operator }
  let starts = 0
  const count = (message: unknown) => {
    const { process: child } = message as { readonly process: ChildProcess }
    child.once('spawn', () => {
      if (child.spawnargs.some((word) => /^settle\.[jt]s$/.test(basename(word)))) starts += 1
    })
  }
  subscribe('child_process', count)
  atEnd(t, () => unsubscribe('child_process', count))
  const money = await startMoneyService(t, { environment })
  await passThrough(t, money)
  // After the last place, the money can be where it belongs before the next process has started.
  const startsMin = settlementFailpointNames.length + 1
  await untilFits(
    async () => starts,
    (seen) => seen >= startsMin,
  )
  assert.equal(starts, startsMin, 'it was killed at every place')
})

for (const name of process.env.SETTLEMENT_KILLS === 'all' ? settlementFailpointNames : []) {
  test(`settlement killed at ${name} alone`, async (t) => {
    const money = await startMoneyService(t, { environment: { FAILPOINT: name, PAYOUT_ADDRESS: operator } })
    const first = settlementPid()
    await passThrough(t, money)
    assert.notEqual(settlementPid(), first, 'it was killed there')
  })
}

test('signer, gateway, chain and settlement killed in the middle of everything: nothing is lost and nothing doubled', async (t) => {
  const money = await startMoneyService(t, { environment: { PAYOUT_ADDRESS: operator } })
  let done = false
  const passed = Promise.all([passThrough(t, money)]).finally(() => {
    done = true
  })
  for (const title of ['penny-sign', 'penny-gateway', 'penny-settle', 'penny-sandbox', 'penny-sign', 'penny-gateway']) {
    const pid = await until(async () => ownChildren().find((child) => titleOf(child) === title))
    if (done) break
    process.kill(pid, 'SIGKILL')
    // It is there again before the next one goes.
    await until(async () => ownChildren().some((child) => child !== pid && titleOf(child) === title) || done)
  }
  await passed
})

test('the whole service killed in the middle and started on what it left: nothing is lost and nothing doubled', async (t) => {
  const dataDir = mkdtempSync(join(tmpdir(), 'penny-crash-'))
  atEnd(t, () => rmSync(dataDir, { recursive: true, force: true }))
  const ledger = await testDatabase()
  atEnd(t, () => ledger.drop())
  const continues = { dataDir, databaseUrl: ledger.url }
  const first = await startMoneyService(t, { continues })
  const account = await first.openAccount()
  const wallet = await openWallet(first, '3')
  const owner = await openWallet(first, '0')
  await wallet.send(account.address, 1_000_000n)
  await until(async () => (await accountNow(first, account)).spendable === 1_000_000n)
  await Promise.all(Array.from({ length: 5 }, () => ask(first, account)))
  const funds = openFunds(t, first)
  await funds.registerOwner(account, owner.address, true)
  const { spendable } = await accountNow(first, account)
  const id = randomUUID()
  await funds.withdraw(account, id, spendable)
  await wallet.sendNatively(account.address, 2_000_000n)
  // All its processes at once, with payments, a deposit and a withdrawal under way.
  for (const pid of ownChildren()) if (titleOf(pid).startsWith('penny-')) process.kill(pid, 'SIGKILL')
  await first.stop()

  const second = await startMoneyService(t, { continues })
  const { database } = second.service
  await until(async () => (await findWithdrawal(database, account.partition, account.id, id))?.state === 'confirmed')
  await until(async () => (await accountNow(second, account)).gateway === 2_000_000n)
  assert.equal(await usdcOf(second, owner.address), spendable)
  await assertExact(second, account)
})
