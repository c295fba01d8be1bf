import assert from 'node:assert/strict'
import { randomBytes, randomUUID } from 'node:crypto'
import { Readable } from 'node:stream'
import { test } from 'node:test'
import { findAccount } from '../../src/ledger/accounts.ts'
import { findViolations } from '../../src/ledger/audit.ts'
import { readPayable } from '../../src/ledger/payouts.ts'
import { requestRefund } from '../../src/ledger/refunds.ts'
import { createRequestId, type RequestId } from '../../src/ledger/request-id.ts'
import { findWallet } from '../../src/ledger/wallet-accounts.ts'
import { fromAtomic, parse, zero } from '../../src/money/usdc.ts'
import { type X402FailpointName, x402FailpointNames } from '../../src/process/failpoints.ts'
import type { Hex } from '../../src/receipts/hex.ts'
import { verifyBundle } from '../../src/receipts/verify-bundle.ts'
import { verifyReceipt } from '../../src/receipts/verify-receipt.ts'
import { paymentTerms, signedPayload } from '../../src/settlement/authorization.ts'
import type { Chain } from '../../src/settlement/chain.ts'
import { confirmPayments } from '../../src/settlement/confirm.ts'
import { resolveUndecided } from '../../src/settlement/confirm-x402.ts'
import { findReceipt } from '../../src/settlement/find-receipt.ts'
import { writeReceipts } from '../../src/settlement/receipt-rows.ts'
import { checkSolvency, readSolvency, watchSolvency } from '../../src/settlement/solvency.ts'
import { advanceTransfers } from '../../src/settlement/transfers/machine.ts'
import type { Address } from '../../src/signer/address.ts'
import { receiptCrypto } from '../../src/signer/receipt-crypto.ts'
import { addressOfKey, signDigest } from '../../src/signer/secp256k1.ts'
import { windowOf } from '../../src/signer/signing-terms.ts'
import { transferDigest } from '../../src/signer/typed-data.ts'
import { decodeHeader, encodeHeader } from '../../src/x402/header.ts'
import { PaidHolds } from '../../src/x402/paid-holds.ts'
import { PaymentRequiredError } from '../../src/x402/payment-required.ts'
import { readPayment } from '../../src/x402/read-payment.ts'
import { requirementsOf, x402Terms } from '../../src/x402/terms.ts'
import { assertBooksBalance } from '../support/audit.ts'
import { afterFaults, beforeFaults, type CallFault } from '../support/circle-gateway.ts'
import { earlier } from '../support/earlier.ts'
import { charge, partitions, testModel } from '../support/ledger.ts'
import { pay, settleAll, settlementSuite, settleOnce } from '../support/settlement-bench.ts'
import { keys, terms } from '../support/signing.ts'

// Wallets before a gateway that answers as Circle's documents say, and fails in every way it can. Whatever happens: what the gateway
// took of a wallet is its credit or was served, once, and what it did not take buys nothing.

const bench = settlementSuite()
const x402 = x402Terms(terms, 'http://penny')

async function openWallet(atomic: bigint) {
  const key = randomBytes(32)
  const address = addressOfKey(key)
  bench.gateway.deposit(address, atomic)
  return { key, address }
}
type Wallet = Awaited<ReturnType<typeof openWallet>>

function sign({ key, address }: Wallet, value: bigint, nonce: Hex = `0x${randomBytes(32).toString('hex')}`) {
  const message = { from: address, to: terms.seller, value, ...windowOf(new Date()), nonce }
  const signature = signDigest(transferDigest(x402.domain, 'TransferWithAuthorization', message), key)
  return { message, signature, identifier: undefined as string | undefined, isUsed: false }
}

class Death extends Error {}

/** One request with that payment. `diesAt` is where its process ends. */
async function buy(
  address: Address,
  payment: ReturnType<typeof sign> | undefined,
  quote: bigint,
  diesAt?: X402FailpointName,
) {
  const { database, parts } = bench
  const wallet = await findWallet(database, address, partitions)
  const failpoint = (name: string) => {
    if (name === diesAt) throw new Death()
  }
  const holds = {
    place: bench.holds.place.bind(bench.holds),
    async placePaid(call: Parameters<typeof bench.holds.placePaid>[0]) {
      failpoint('before_x402_commit')
      const decision = await bench.holds.placePaid(call)
      failpoint('after_x402_commit')
      return decision
    },
  }
  const paid = new PaidHolds({ ...parts, holds, terms: x402, inFlightCap: parse('1'), failpoint }, { wallet, payment })
  const requestId = createRequestId(wallet.partition, Date.now())
  return paid.place({
    requestId,
    payer: wallet,
    quote: fromAtomic(quote),
    model: testModel.id,
    stream: false,
    maxTokens: 9,
  })
}

async function creditOf(address: Address): Promise<bigint> {
  const { partition, accountId } = await findWallet(bench.database, address, partitions)
  return (await findAccount(bench.database, partition, accountId))?.credit ?? 0n
}

/** Half a minute later. */
async function resolve(): Promise<void> {
  await bench.database.query(
    `update transfers set ${earlier('sent_at', "interval '1 minute'")}, ${earlier('changed_at', "interval '1 minute'")}, ${earlier('created_at', "interval '2 minutes'")} where kind = 'x402'`,
  )
  await resolveUndecided(bench.parts)
}

/** What the gateway has taken of the wallet. */
function takenFrom(address: Address): bigint {
  const own = [...bench.gateway.transfers.values()].filter(
    ({ from, status }) => from === address && status !== 'failed',
  )
  return own.reduce((sum, { amount }) => sum + amount, 0n)
}

// Silence is to the client what a connection that hung up is, and takes as long as its patience.
for (const fault of [undefined, ...beforeFaults, ...afterFaults.filter((name) => name !== 'silence')]) {
  test(`the gateway answers a payment with ${fault ?? 'its outcome'}: nothing is lost and nothing is free`, async () => {
    const wallet = await openWallet(1_000n)
    const payment = sign(wallet, 100n)
    let faults = 1
    bench.gateway.faults = (path): CallFault | undefined =>
      path.includes('settle') && faults-- > 0 ? fault : undefined
    const first = await buy(wallet.address, payment, 100n).catch((error: Error) => error)
    if (!(first instanceof Error)) {
      assert.ok('hold' in first)
      await bench.holds.end(charge(first.hold, 40n))
      assert.equal(await creditOf(wallet.address), takenFrom(wallet.address) - 40n)
    } else {
      // Sent again in time it is not taken on twice; later it is, unless it has become credit.
      await assert.rejects(buy(wallet.address, payment, 100n))
      await resolve()
      assert.equal(await creditOf(wallet.address), takenFrom(wallet.address))
      const again = await buy(wallet.address, payment, 100n).catch((error: Error) => error)
      if (takenFrom(wallet.address) === 100n && !(again instanceof Error)) {
        assert.ok('hold' in again)
        await bench.holds.end(charge(again.hold, 100n))
      }
    }
    assert.ok(takenFrom(wallet.address) <= 100n)
    await assertBooksBalance(bench.database)
  })
}

// The gateway's list of transfers may lag behind what it accepts.
for (const reason of ['nonce_already_used', 'insufficient_balance'] as const) {
  test(`an accepted payment whose repetition is refused with ${reason} becomes credit`, async () => {
    const wallet = await openWallet(100n)
    const payment = sign(wallet, 100n)
    await assert.rejects(buy(wallet.address, payment, 100n, 'after_x402_settle'), Death)
    const accepted = [...bench.gateway.transfers.values()].find(({ from }) => from === wallet.address)!
    bench.gateway.transfers.delete(accepted.id)
    await bench.database.query(`update transfers set ${earlier('sent_at', "interval '1 minute'")} where kind = 'x402'`)
    bench.gateway.refusals.push(reason)
    await assert.rejects(buy(wallet.address, payment, 100n), { code: 'payment_invalid' })
    // It may lag for hours: the payment is not forgotten while it is valid.
    const waitHours = () =>
      bench.database.query(
        `update transfers set ${earlier('changed_at', "interval '3 hours'")}, ${earlier('created_at', "interval '3 hours'")} where kind = 'x402'`,
      )
    for (let time = 0; time < 2; time += 1) {
      await waitHours()
      await resolve()
    }
    bench.gateway.transfers.set(accepted.id, accepted)
    await waitHours()
    await resolve()
    assert.equal(await creditOf(wallet.address), 100n)
    await assertBooksBalance(bench.database)
  })
}

for (const name of x402FailpointNames) {
  test(`a process that dies at ${name} loses no payment and gives nothing away`, async () => {
    const wallet = await openWallet(1_000n)
    const payment = sign(wallet, 100n)
    await assert.rejects(buy(wallet.address, payment, 100n, name), Death)
    await resolve()
    const [held] = await bench.database.query<{ id: string }>('select id from holds')
    // After the commit the hold is there; the lease of the dead node ends it, as it ends every other.
    assert.equal(held !== undefined, name === 'after_x402_commit')
    const credit = await creditOf(wallet.address)
    assert.equal(credit + (held === undefined ? 0n : 100n), takenFrom(wallet.address))
    if (held !== undefined) {
      await bench.database.query('delete from holds where partition >= 0')
      await bench.database.query('update accounts set held = 0, credit = credit + held where held > 0')
      await bench.database.query('update api_keys set held = 0 where held > 0')
    }
    // The wallet spends what it paid, with the same payment or by its credit, and once.
    const again = await buy(wallet.address, name === 'after_x402_claim' ? payment : undefined, 100n)
    assert.ok('hold' in again)
    await bench.holds.end(charge(again.hold, 100n))
    await assert.rejects(buy(wallet.address, payment, 100n))
    assert.deepEqual([await creditOf(wallet.address), takenFrom(wallet.address)], [0n, 100n])
    await assertBooksBalance(bench.database)
  })
}

// Our own gateway puts every authorization on chain with its signature: anyone can copy it.
test('a payment of an account that is presented as the payment of a wallet is refused, and is no credit', async () => {
  const { database, gateway } = bench
  const account = await bench.openAccount(10_000n)
  await pay(bench, account, 5_000n, 5_000n)
  await settleOnce(bench)
  gateway.batch()
  const copied = [...gateway.transfers.values()].find(({ from }) => from === account.address)!
  assert.deepEqual([copied.status, copied.amount], ['completed', 5_000n])
  const [row] = await database.query<{ at: Date }>('select authorized_at as at from payments where account_id = $1', [
    account.id,
  ])
  const message = { from: copied.from, to: copied.to, value: copied.amount, ...windowOf(row!.at), nonce: copied.nonce }
  const digest = transferDigest(x402.domain, 'TransferWithAuthorization', message)
  const signature = signDigest(digest, keys.ofAccount(account.id).privateKey)
  const accepted = requirementsOf(x402, message.value)
  const header = encodeHeader(signedPayload(message, signature, accepted, bench.parts.resource))
  const present = async () => buy(copied.from, { ...readPayment(header, x402, Date.now()), isUsed: false }, 5_000n)
  await assert.rejects(present(), { code: 'payment_invalid', reason: 'nonce_already_used' })
  await resolve()
  assert.equal(await creditOf(copied.from), 0n)
  await settleAll(bench)
  await assertBooksBalance(database)
})

/** The wallet goes to the gateway itself. */
async function submitAlone({ message, signature }: ReturnType<typeof sign>): Promise<void> {
  const accepted = requirementsOf(x402, message.value)
  const payment = signedPayload(message, signature, accepted, bench.parts.resource)
  const [answer] = await bench.parts.gatewayClient.settle([{ paymentPayload: payment, paymentRequirements: accepted }])
  assert.equal(answer!.state, 'received')
}

test('a payment whose nonce has paid another amount does not hold payouts back', async () => {
  const { database, gateway } = bench
  gateway.deposit(terms.seller, 10_000n)
  const payable = () => readPayable(database, async () => gateway.balance(terms.seller))
  const before = await payable()
  const wallet = await openWallet(10_000n)
  for (const dies of [undefined, 'after_x402_claim'] as const) {
    const cheap = sign(wallet, 10n)
    const dear = sign(wallet, 5_000n, cheap.message.nonce)
    if (dies !== undefined) await assert.rejects(buy(wallet.address, dear, 5_000n, dies), Death)
    await submitAlone(cheap)
    if (dies === undefined)
      await assert.rejects(buy(wallet.address, dear, 5_000n), { code: 'payment_invalid', reason: 'payment_used' })
    else await resolve()
    assert.equal(await payable(), before, String(dies))
  }
  assert.equal(await creditOf(wallet.address), 0n)
  gateway.deposit(terms.seller, -10_000n)
  bench.alarms.length = 0
  await assertBooksBalance(database)
})

test('a lost payment that cannot be looked up does not delay the payments of other wallets', async () => {
  const { database, gateway } = bench
  const wallets = [await openWallet(1_000n), await openWallet(1_000n)] as const
  for (const wallet of wallets) {
    const decision = await buy(wallet.address, sign(wallet, 100n), 100n)
    assert.ok('hold' in decision)
    await bench.holds.end(charge(decision.hold, 100n))
  }
  gateway.lose([...gateway.transfers.values()].find(({ from }) => from === wallets[0].address)!.id)
  gateway.batch()
  gateway.faults = (path) => (path === 'GET /v1/x402/transfers' ? 'unavailable' : undefined)
  await confirmAll()
  const stateOf = async ({ address }: Wallet) =>
    (
      await database.query<{ state: string }>("select state from transfers where kind = 'x402' and counterparty = $1", [
        address,
      ])
    )[0]!.state
  assert.deepEqual([await stateOf(wallets[0]), await stateOf(wallets[1])], ['received', 'confirmed'])
  gateway.faults = () => undefined
  await confirmAll()
  gateway.batch()
  await confirmAll()
  assert.equal(await stateOf(wallets[0]), 'confirmed')
  bench.alarms.length = 0
  await assertBooksBalance(database)
})

test('a lost payment that the gateway does not take again is asked for less and less often', async () => {
  const { database, gateway, parts } = bench
  const wallet = await openWallet(1_000n)
  const decision = await buy(wallet.address, sign(wallet, 100n), 100n)
  assert.ok('hold' in decision)
  await bench.holds.end(charge(decision.hold, 100n))
  gateway.lose([...gateway.transfers.values()].find(({ from }) => from === wallet.address)!.id)
  gateway.deposit(wallet.address, -1_000n)
  const submissions = () => gateway.calls.filter((call) => call === 'POST /v1/x402/settle').length
  const before = submissions()
  const longAgo = `update transfers set ${earlier('changed_at', "interval '30 seconds'")}, ${earlier('created_at', "interval '1 minute'")} where kind = 'x402'`
  await database.query(longAgo)
  for (let round = 0; round < 2; round += 1) await confirmPayments(parts, 1_000)
  assert.equal(submissions() - before, 1)
  gateway.deposit(wallet.address, 1_000n)
  await confirmAll()
  gateway.batch()
  await confirmAll()
  bench.alarms.length = 0
  await assertBooksBalance(database)
})

test('a payment that the gateway lost is not paid by a smaller one with its nonce', async () => {
  const { database, gateway } = bench
  const wallet = await openWallet(10_000n)
  const dear = sign(wallet, 5_000n)
  const decision = await buy(wallet.address, dear, 5_000n)
  assert.ok('hold' in decision)
  await bench.holds.end(charge(decision.hold, 0n))
  gateway.lose([...gateway.transfers.values()].find(({ from }) => from === wallet.address)!.id)
  await submitAlone(sign(wallet, 10n, dear.message.nonce))
  gateway.batch()
  await confirmAll()
  assert.deepEqual([await creditOf(wallet.address), takenFrom(wallet.address)], [0n, 10n])
  bench.alarms.length = 0
  await assertBooksBalance(database)
})

test('the limits of a wallet are checked before its payment is taken: the amount in flight, and the limit of its own key', async () => {
  const wallet = await openWallet(2_000_000n)
  const buyMore = async () => {
    const decision = await buy(wallet.address, sign(wallet, 600_000n), 600_000n)
    return 'refusal' in decision ? decision.refusal.code : decision
  }
  const first = await buyMore()
  assert.ok(typeof first === 'object')
  assert.equal(await buyMore(), 'in_flight_cap')
  await bench.holds.end(charge(first.hold, 100n))
  const { partition, keyId } = await findWallet(bench.database, wallet.address, partitions)
  await bench.database.query('update api_keys set limit_amount = 500 where partition = $1 and id = $2', [
    partition,
    keyId,
  ])
  assert.equal(await buyMore(), 'key_limit_exceeded')
  assert.equal(takenFrom(wallet.address), 600_000n)
  await assertBooksBalance(bench.database)
})

test('a request whose credit nearly covers it is asked for the smallest payment, and one that is covered for none', async () => {
  const wallet = await openWallet(10_000n)
  const asked = async (quote: bigint) => {
    const error = await buy(wallet.address, undefined, quote).catch((problem: Error) => problem)
    assert.ok(error instanceof PaymentRequiredError)
    const { accepts } = decodeHeader(error.headers!['payment-required']!) as {
      readonly accepts: readonly [{ readonly amount: string }]
    }
    assert.equal(error.extra!.amount_atomic, accepts[0].amount)
    return BigInt(accepts[0].amount)
  }
  assert.deepEqual([await asked(40n), await asked(2_000n), await asked(2_500n)], [2_000n, 2_000n, 2_500n])
  const first = await buy(wallet.address, sign(wallet, 2_500n), 2_500n)
  assert.ok('hold' in first)
  await bench.holds.end(charge(first.hold, 100n))
  // Otherwise a payment of one unit, with its gas, would pay each request.
  assert.deepEqual([await asked(2_401n), await asked(4_400n), await asked(4_401n)], [2_000n, 2_000n, 2_001n])
  const covered = await buy(wallet.address, undefined, 2_400n)
  assert.ok('hold' in covered)
  await bench.holds.end(charge(covered.hold, 0n))
  const topUp = await buy(wallet.address, sign(wallet, 2_000n), 2_401n)
  assert.ok('hold' in topUp)
  await bench.holds.end(charge(topUp.hold, 2_401n))
  assert.equal(await creditOf(wallet.address), 1_999n)
  await assertBooksBalance(bench.database)
})

test('a payment that the gateway forgot is submitted again; one that fails after all is taken back', async () => {
  const wallet = await openWallet(1_000n)
  const decision = await buy(wallet.address, sign(wallet, 100n), 100n)
  assert.ok('hold' in decision)
  await bench.holds.end(charge(decision.hold, 30n))
  const [id] = [...bench.gateway.transfers.values()]
    .filter(({ from }) => from === wallet.address)
    .map((transfer) => transfer.id)
  bench.gateway.lose(id!)
  await confirmAll()
  assert.equal(takenFrom(wallet.address), 100n)
  bench.gateway.batch()
  await confirmAll()
  await assertBooksBalance(bench.database)
  const failing = await buy(wallet.address, sign(wallet, 50n), 100n)
  assert.ok('hold' in failing)
  await bench.holds.end(charge(failing.hold, 0n))
  const other = [...bench.gateway.transfers.values()].find(
    ({ from, status }) => from === wallet.address && status === 'received',
  )!
  bench.gateway.fail(other.id)
  await confirmAll()
  assert.equal(await creditOf(wallet.address), 70n)
  await assertBooksBalance(bench.database)
})

test('a refund is paid once, whatever the gateway answers', async () => {
  const wallet = await openWallet(1_000n)
  const decision = await buy(wallet.address, sign(wallet, 300n), 300n)
  assert.ok('hold' in decision)
  await bench.holds.end(charge(decision.hold, 100n))
  bench.gateway.batch()
  await confirmAll()
  const { partition, accountId } = await findWallet(bench.database, wallet.address, partitions)
  const id = '00000000-0000-4000-8000-000000000001'
  await requestRefund(bench.database, {
    partition,
    accountId,
    id,
    amount: undefined,
    min: fromAtomic(1n),
    transferGas: zero,
  })
  const faults: CallFault[] = ['hung up', 'unavailable', 'error after', 'empty body']
  bench.gateway.faults = () => faults.shift()
  for (let round = 0; round < 8; round += 1) {
    await bench.database.query(
      `update transfers set ${earlier('changed_at', "interval '1 minute'")}, ${earlier('created_at', "interval '2 minutes'")} where kind = 'refund'`,
    )
    await advanceTransfers(bench.parts, 'refund')
    bench.gateway.batch()
  }
  const [row] = await bench.database.query<{ state: string }>('select state from transfers where id = $1', [id])
  assert.equal(row!.state, 'confirmed')
  assert.deepEqual([bench.gateway.balance(wallet.address), await creditOf(wallet.address)], [900n, 0n])
  await assertBooksBalance(bench.database)
})

for (const status of ['received', 'completed'] as const) {
  test(`a refund that the gateway has under another id, ${status}, after it lost its database is paid once and ends`, async () => {
    const { database, gateway } = bench
    const wallet = await openWallet(1_000n)
    const decision = await buy(wallet.address, sign(wallet, 300n), 300n)
    assert.ok('hold' in decision)
    await bench.holds.end(charge(decision.hold, 100n))
    gateway.batch()
    await confirmAll()
    const { partition, accountId } = await findWallet(database, wallet.address, partitions)
    const id = randomUUID()
    await requestRefund(database, {
      partition,
      accountId,
      id,
      amount: undefined,
      min: fromAtomic(1n),
      transferGas: zero,
    })
    await advanceTransfers(bench.parts, 'refund')
    const rowOf = async () => {
      const [row] = await database.query<{ state: string; gateway_id: string | null }>(
        'select state, gateway_id from transfers where id = $1',
        [id],
      )
      return [row!.state, row!.gateway_id]
    }
    const lost = [...gateway.transfers.values()].find(({ to }) => to === wallet.address)!
    assert.deepEqual(await rowOf(), ['received', lost.id])
    if (status === 'completed') gateway.batch()
    // It reads the chain again, and names what it finds anew.
    const found = { ...lost, id: randomUUID() }
    gateway.transfers.delete(lost.id)
    gateway.transfers.set(found.id, found)
    const before = gateway.transfers.size
    await dueNow()
    await advanceTransfers(bench.parts, 'refund')
    assert.deepEqual(await rowOf(), [status === 'completed' ? 'confirmed' : 'received', found.id])
    await refundAll()
    assert.deepEqual(await rowOf(), ['confirmed', found.id])
    assert.deepEqual([gateway.transfers.size, gateway.balance(wallet.address)], [before, 900n])
    assert.deepEqual(bench.alarms, [])
    await assertBooksBalance(database)
  })
}

test('a refund waits for the payments that its credit comes from, and while the wallet is suspended', async () => {
  const { database, gateway } = bench
  const wallet = await openWallet(1_000n)
  const spend = async () => {
    const decision = await buy(wallet.address, sign(wallet, 300n), 300n)
    assert.ok('hold' in decision)
    await bench.holds.end(charge(decision.hold, 100n))
  }
  await spend()
  const { partition, accountId } = await findWallet(database, wallet.address, partitions)
  const id = randomUUID()
  await requestRefund(database, { partition, accountId, id, amount: undefined, min: fromAtomic(1n), transferGas: zero })
  const stateOf = async () =>
    (await database.query<{ state: string }>('select state from transfers where id = $1', [id]))[0]!.state
  await advanceTransfers(bench.parts, 'refund')
  assert.equal(await stateOf(), 'requested')
  gateway.batch()
  await confirmAll()
  const suspend = (reason: string | null) =>
    database.query('update accounts set suspended_reason = $3, suspended_at = $4 where partition = $1 and id = $2', [
      partition,
      accountId,
      reason,
      reason && new Date(),
    ])
  await suspend('test')
  await refundAll()
  assert.equal(await stateOf(), 'requested')
  await suspend(null)
  // A payment after the request does not delay it.
  await spend()
  await refundAll()
  assert.equal(await stateOf(), 'confirmed')
  await confirmAll()
  await assertBooksBalance(database)
})

test('a payout leaves what wallets paid and did not use, before the ledger knows that their payments are final', async () => {
  const { database, gateway } = bench
  const payable = () => readPayable(database, async () => gateway.balance(terms.seller))
  const [spender, refunded, dead] = [await openWallet(1_000n), await openWallet(1_000n), await openWallet(1_000n)]
  gateway.deposit(terms.seller, 10_000n)
  gateway.batch()
  await confirmAll()
  const before = await payable()
  for (const wallet of [spender, refunded]) {
    const decision = await buy(wallet.address, sign(wallet, 200n), 200n)
    assert.ok('hold' in decision)
    await bench.holds.end(charge(decision.hold, 10n))
  }
  const { partition, accountId } = await findWallet(database, refunded.address, partitions)
  await requestRefund(database, {
    partition,
    accountId,
    id: randomUUID(),
    amount: undefined,
    min: fromAtomic(1n),
    transferGas: zero,
  })
  await assert.rejects(buy(dead.address, sign(dead, 200n), 200n, 'after_x402_settle'), Death)
  gateway.batch()
  assert.equal(await payable(), before + 10n + 10n, 'only the charges')
  await confirmAll()
  await resolve()
  await confirmAll()
  assert.equal(await payable(), before + 10n + 10n)
  await refundAll()
  assert.equal(await payable(), before + 10n + 10n, 'the refund was never part of it')
  gateway.deposit(terms.seller, -10_000n)
  await assertBooksBalance(database)
})

test('after a payment failed late, later credit of its wallet is owed in full: payouts leave it, and solvency counts it', async () => {
  const { database, gateway } = bench
  const { seller } = terms
  const chain = {
    finalBlock: async () => 1n,
    gatewayBalances: async (depositors: readonly Address[]) => depositors.map((each) => gateway.balance(each)),
  } as unknown as Chain
  const numbers = async () => ({
    payable: await readPayable(database, async () => gateway.balance(seller)),
    owed: BigInt((await checkSolvency({ database, chain, seller })).owed_back_atomic),
  })
  gateway.deposit(seller, 10_000n)
  gateway.batch()
  await confirmAll()
  const before = await numbers()
  const wallet = await openWallet(1_000n)
  const spend = async (value: bigint, cost: bigint) => {
    const decision = await buy(wallet.address, sign(wallet, value), value)
    assert.ok('hold' in decision)
    await bench.holds.end(charge(decision.hold, cost))
  }
  await spend(100n, 80n)
  const failing = [...gateway.transfers.values()].find(({ from }) => from === wallet.address)!
  gateway.fail(failing.id)
  await confirmAll()
  assert.deepEqual(await numbers(), before, 'the loss is no money, and no debt')
  const { partition, accountId } = await findWallet(database, wallet.address, partitions)
  await database.query(
    'update accounts set suspended_at = null, suspended_reason = null where partition = $1 and id = $2',
    [partition, accountId],
  )
  await spend(200n, 50n)
  gateway.batch()
  const accepted = await numbers()
  assert.equal(accepted.payable, before.payable + 50n)
  await confirmAll()
  assert.equal(await creditOf(wallet.address), 150n)
  assert.deepEqual(await numbers(), { payable: before.payable + 50n, owed: before.owed + 150n })
  await requestRefund(database, {
    partition,
    accountId,
    id: randomUUID(),
    amount: undefined,
    min: fromAtomic(1n),
    transferGas: zero,
  })
  assert.deepEqual(await numbers(), { payable: before.payable + 50n, owed: before.owed })
  await refundAll()
  assert.deepEqual(await numbers(), { payable: before.payable + 50n, owed: before.owed })
  gateway.deposit(seller, -10_000n)
  bench.alarms.length = 0
  await assertBooksBalance(database)
})

test('the audit finds a wallet account whose totals are not those of its payments', async () => {
  const wallet = await openWallet(1_000n)
  const decision = await buy(wallet.address, sign(wallet, 300n), 300n)
  assert.ok('hold' in decision)
  await bench.holds.end(charge(decision.hold, 100n))
  bench.gateway.batch()
  await confirmAll()
  const { partition, accountId } = await findWallet(bench.database, wallet.address, partitions)
  await requestRefund(bench.database, {
    partition,
    accountId,
    id: randomUUID(),
    amount: fromAtomic(50n),
    min: fromAtomic(1n),
    transferGas: zero,
  })
  await assertBooksBalance(bench.database)
  const places = [
    ['accounts', 'covered', 'id'],
    ['accounts', 'paid', 'id'],
    ['accounts', 'credit', 'id'],
    ['accounts', 'withdrawn', 'id'],
    ['deposits', 'amount', 'account_id'],
    ['transfers', 'amount', "kind = 'x402' and account_id"],
  ] as const
  for (const [table, column, owner] of places) {
    const change = (by: string) =>
      bench.database.query(
        `update ${table} set ${column} = ${column} ${by} where partition = $1 and ${owner} = $2 returning 1`,
        [partition, accountId],
      )
    assert.equal((await change('+ 1')).length, 1)
    assert.notDeepEqual(await findViolations(bench.database), [], `${table}.${column}`)
    await change('- 1')
    await assertBooksBalance(bench.database)
  }
})

test('receipts of a wallet are signed without a transfer, and prove that they were paid in advance', async () => {
  const { database, gateway, holds } = bench
  const wallet = await openWallet(1_000n)
  const ids: RequestId[] = []
  for (const cost of [40n, 0n, 60n]) {
    const decision = await buy(wallet.address, sign(wallet, 100n), 100n)
    assert.ok('hold' in decision)
    ids.push(decision.hold.requestId)
    await holds.end(charge(decision.hold, cost))
  }
  const before = gateway.transfers.size
  await settleOnce(bench)
  assert.equal(gateway.transfers.size, before)
  await assertBooksBalance(database)
  const parts = { database, terms: paymentTerms(terms, 0), issuer: keys.ofRole('issuer').address }
  const receipts = await Promise.all(ids.map(async (id) => (await findReceipt(parts, id))!))
  for (const receipt of receipts) {
    assert.deepEqual([receipt.entry.payer, receipt.payment!.value_atomic], [wallet.address, '100'])
    const checks = await verifyReceipt(receipt, receiptCrypto)
    assert.ok(
      checks.every(({ ok, pending }) => ok && !pending),
      JSON.stringify(checks),
    )
    assert.match(checks.find(({ name }) => name === 'inclusion')!.detail, /paid in advance over x402/)
  }
  // What a payment that has to be on chain looks like cannot be made to pass for one that was paid in advance, or the reverse.
  const forged = { ...receipts[0]!, payment: { ...receipts[0]!.payment!, nonce: `0x${'1'.repeat(64)}` as const } }
  assert.equal((await verifyReceipt(forged, receiptCrypto)).find(({ name }) => name === 'signature')!.ok, false)
  const { partition, accountId } = await findWallet(database, wallet.address, partitions)
  const bundle = (await writeReceipts(parts, { partition, accountId }))!
  const report = await verifyBundle(
    Readable.from(bundle).map((text: string) => Buffer.from(text)),
    {
      crypto: receiptCrypto,
    },
  )
  assert.ok(report.checks.every(({ ok }) => ok))
  assert.deepEqual([report.totals.entries, report.totals.unpaid, report.totals.waiting], [3n, 0n, 0n])
})

test('solvency finds a seller that spent, or a ledger that promises, more than wallets are owed; refunds wait for it', async () => {
  const { database, gateway, parts } = bench
  const seller = terms.seller
  const chain = {
    finalBlock: async () => 1n,
    gatewayBalances: async (depositors: readonly Address[]) => depositors.map((each) => gateway.balance(each)),
  } as unknown as Chain
  const watch = async () => {
    await watchSolvency({ ...parts, chain, seller, recheckMs: 0 })
    const report = (await readSolvency(database)) as Record<string, unknown>
    return [report.ok, report.seller_short_atomic]
  }
  // What other tests have asked for is paid first.
  await refundAll()
  const wallet = await openWallet(1_000n)
  const decision = await buy(wallet.address, sign(wallet, 300n), 300n)
  assert.ok('hold' in decision)
  await bench.holds.end(charge(decision.hold, 100n))
  gateway.batch()
  await confirmAll()
  // All that the seller has is what it owes to wallets, to the unit.
  const { owed_back_atomic: owed, seller_atomic: has } = await checkSolvency({ database, chain, seller })
  gateway.deposit(seller, BigInt(owed) - BigInt(has))
  assert.deepEqual(await watch(), [true, '0'])
  gateway.deposit(seller, -1n)
  assert.deepEqual(await watch(), [false, '1'])
  const { partition, accountId } = await findWallet(database, wallet.address, partitions)
  const id = randomUUID()
  await requestRefund(database, { partition, accountId, id, amount: undefined, min: fromAtomic(1n), transferGas: zero })
  await advanceTransfers(parts, 'refund')
  const stateOf = async () =>
    (await database.query<{ state: string }>('select state from transfers where id = $1', [id]))[0]!.state
  assert.equal(await stateOf(), 'requested')
  // What was asked for is no longer owed, and is paid once the seller has it again.
  gateway.deposit(seller, 1n)
  assert.deepEqual(await watch(), [true, '0'])
  await refundAll()
  assert.deepEqual([await stateOf(), gateway.balance(wallet.address)], ['confirmed', 900n])
  assert.deepEqual(await watch(), [true, '0'])
  // A row that promises a unit more than was paid is a unit that the seller does not have.
  const corrupt = (by: bigint) =>
    database.query('update accounts set paid = paid + $3, covered = covered + $3 where partition = $1 and id = $2', [
      partition,
      accountId,
      by,
    ])
  await corrupt(1n)
  assert.deepEqual(await watch(), [false, '1'])
  await corrupt(-1n)
  gateway.deposit(seller, BigInt(has))
  assert.deepEqual(await watch(), [true, '0'])
  bench.alarms.length = 0
  await assertBooksBalance(database)
})

async function refundAll(): Promise<void> {
  for (let round = 0; round < 3; round += 1) {
    await dueNow()
    await advanceTransfers(bench.parts, 'refund')
    bench.gateway.batch()
  }
}

async function dueNow(): Promise<void> {
  await bench.database.query(
    `update transfers set ${earlier('changed_at', "interval '1 minute'")} where kind = 'refund'`,
  )
}

async function confirmAll(): Promise<void> {
  for (let round = 0; round < 3; round += 1) {
    await bench.database.query(
      `update transfers set ${earlier('changed_at', "interval '5 minutes'")} where kind = 'x402'`,
    )
    await confirmPayments(bench.parts, 0)
  }
}
