import assert from 'node:assert/strict'
import { type TestContext, test } from 'node:test'
import { encodeFunctionData } from 'viem'
import { devUsdcAbi } from '../../contracts/generated/DevUsdc.abi.ts'
import { settlementGatewayAbi } from '../../contracts/generated/SettlementGateway.abi.ts'
import { findViolations } from '../../src/ledger/audit.ts'
import { assignAddress } from '../../src/ledger/deposit-addresses.ts'
import type { Payer } from '../../src/ledger/hold-calls.ts'
import { makeDuePayments, readGatewayState } from '../../src/ledger/payments.ts'
import { format } from '../../src/money/usdc.ts'
import { paymentTerms } from '../../src/settlement/authorization.ts'
import { confirmPayments } from '../../src/settlement/confirm.ts'
import { createGatewayClient } from '../../src/settlement/gateway-client.ts'
import { submitPayments } from '../../src/settlement/submit.ts'
import { askCustodian, createSigner } from '../../src/signer/signer.ts'
import type { SigningTerms } from '../../src/signer/signing-terms.ts'
import { atEnd } from '../support/at-end.ts'
import { earlier } from '../support/earlier.ts'
import { account as chainAccount, onChain, openBench, sendCall, token, untilBalance } from '../support/gateway.ts'
import { charge, hold, openLedger, openPayer } from '../support/ledger.ts'
import { testDatabase } from '../support/postgres.ts'
import { gasAllowance, usdc } from '../support/sandbox-chain.ts'
import { dueAtOnce } from '../support/settlement-bench.ts'
import { createCustodian, keys, terms } from '../support/signing.ts'
import { until } from '../support/until.ts'

// The settlement client before our own gateway, which tells everything that changed since a cursor.

const funds = 100_000n

async function openHouse(t: TestContext) {
  const bench = await openBench(t)
  const ledger = await testDatabase()
  atEnd(t, () => ledger.drop())
  const { database } = ledger
  const wallet = bench.wallet.toLowerCase() as SigningTerms['gatewayWallet']
  const ownTerms: SigningTerms = {
    ...terms,
    gatewayWallet: wallet,
    gatewayMinter: wallet,
    gatewayDomain: terms.chainId,
  }
  const signer = createSigner({ ask: askCustodian(createCustodian(t, { terms: ownTerms })), onFault: assert.ifError })
  const holds = await openLedger(database)
  const alarms: string[] = []
  /** As a settlement process that was just started: it remembers nothing. */
  const connect = (url: string) => {
    const gatewayClient = createGatewayClient({ url, token, domain: ownTerms.gatewayDomain })
    atEnd(t, () => gatewayClient.close())
    return {
      database,
      signer,
      gatewayClient,
      terms: paymentTerms(ownTerms, 0),
      resource: { url: 'http://penny/', description: 'Chat completion', mimeType: 'application/json' },
      failpoint: () => {},
      onAlarm: (what: string) => void alarms.push(what),
    }
  }
  return {
    bench,
    database,
    alarms,
    connect,
    start: (options: Parameters<typeof bench.start>[0] = {}) => bench.start({ payees: [ownTerms.seller], ...options }),
    async openAccount(url: string) {
      const payer = await openPayer(database, funds)
      const { address } = keys.ofAccount(payer.accountId)
      await assignAddress(database, { partition: payer.partition, id: payer.accountId, address })
      const stranger = chainAccount('stranger')
      await bench.chain.admin.giveUsdc(stranger.address, funds + gasAllowance)
      const approve = encodeFunctionData({ abi: devUsdcAbi, functionName: 'approve', args: [wallet, funds] })
      await sendCall(bench.chain, stranger, usdc, approve)
      const args = [usdc, address, funds] as const
      const deposit = encodeFunctionData({ abi: settlementGatewayAbi, functionName: 'depositFor', args })
      await sendCall(bench.chain, stranger, wallet, deposit)
      await untilBalance(url, address, format(funds as never))
      return { ...payer, address }
    },
    async serve(payer: Payer, charged: bigint) {
      await holds.end(charge(await hold(holds, payer, 1_000n), charged))
      await makeDuePayments(database, dueAtOnce, 0)
    },
    async states({ accountId }: Payer) {
      const rows = await database.query<{ state: string }>(
        'select state from payments where account_id = $1 order by number',
        [accountId],
      )
      return rows.map(({ state }) => state)
    },
    /** What was heard last of open payments was long ago. */
    age: () => database.query(`update payments set ${earlier('changed_at', "interval '61 seconds'")}`),
  }
}

type Parts = Parameters<typeof submitPayments>[0]

function isFinal(states: readonly string[]): boolean {
  return states.every((state) => state === 'completed')
}

test('payments are confirmed from the list of changes, and a restarted process continues where the last one stopped', async (t) => {
  const house = await openHouse(t)
  const { url } = await house.start()
  const account = await house.openAccount(url)
  const other = await house.openAccount(url)
  let cursor: string | undefined
  for (const charged of [300n, 500n]) {
    const parts = house.connect(url)
    const asked: string[] = []
    const gatewayClient = {
      ...parts.gatewayClient,
      news: (from: string | undefined, open: Parameters<Parts['gatewayClient']['news']>[1]) => {
        asked.push(from ?? 'the beginning')
        assert.ok(
          open.every(({ isOverdue }) => !isOverdue),
          'no payment is asked for by itself',
        )
        return parts.gatewayClient.news(from, open)
      },
    }
    await house.serve(account, charged)
    await house.serve(other, 7n)
    await submitPayments(parts)
    await until(async () => {
      await confirmPayments({ ...parts, gatewayClient }, 0)
      return isFinal([...(await house.states(account)), ...(await house.states(other))])
    })
    assert.equal(asked[0], cursor ?? 'the beginning')
    cursor = (await readGatewayState(house.database)).cursor
    assert.ok(cursor !== undefined)
  }
  assert.equal(await onChain(house.bench, account.address), funds - 800n)
  assert.equal(await onChain(house.bench, other.address), funds - 14n)
  const [row] = await house.database.query<{ batch_root: Buffer | null; batch_proof: Buffer | null }>(
    'select batch_root, batch_proof from payments limit 1',
  )
  assert.ok(row!.batch_root !== null && row!.batch_proof !== null, 'with what proves it')
  assert.deepEqual(house.alarms, [])
  assert.ok((await house.connect(url).gatewayClient.batchGas())! > 21_000n, 'what it cost is told')
  assert.deepEqual(await findViolations(house.database), [])
})

test('a change reported before the payment’s id was stored is not lost, although the cursor passes it', async (t) => {
  const house = await openHouse(t)
  const { url } = await house.start()
  const [account, other] = [await house.openAccount(url), await house.openAccount(url)]
  const parts = house.connect(url)
  await house.serve(account, 300n)
  const dies = (name: string) => assert.notEqual(name, 'after_submit')
  await assert.rejects(submitPayments({ ...parts, failpoint: dies }))
  await until(async () => (await onChain(house.bench, account.address)) === funds - 300n)
  // The first has its turn later: the other's news moves the cursor past its own.
  await house.database.query(`update payments set reason = 'busy', changed_at = now()`)
  await house.serve(other, 700n)
  await submitPayments(parts)
  await until(async () => {
    await confirmPayments(parts, 0)
    return isFinal(await house.states(other))
  })
  assert.deepEqual(await house.states(account), ['submitted'])
  await house.age()
  await submitPayments(house.connect(url))
  await until(async () => {
    await confirmPayments(parts, 0)
    return isFinal(await house.states(account))
  })
  assert.equal(await onChain(house.bench, account.address), funds - 300n, 'paid once')
  assert.equal(await onChain(house.bench, terms.seller), 1_000n)
  assert.deepEqual(await findViolations(house.database), [])
})

test('payments that a gateway with another database has lost are submitted again and paid once', async (t) => {
  const house = await openHouse(t)
  const first = await house.start()
  const [account, other] = [await house.openAccount(first.url), await house.openAccount(first.url)]
  const parts = house.connect(first.url)
  await house.serve(account, 300n)
  await submitPayments(parts)
  await until(async () => {
    await confirmPayments(parts, 0)
    return isFinal(await house.states(account))
  })
  await first.stop()
  const slow = await house.start({ batchMs: 3_600_000 })
  await house.serve(other, 700n)
  await submitPayments(house.connect(slow.url))
  assert.deepEqual(await house.states(other), ['received'])
  await slow.stop()

  const lost = await testDatabase()
  atEnd(t, () => lost.drop())
  const second = await house.start({ databaseUrl: lost.url })
  await untilBalance(second.url, other.address, format(funds as never))
  const again = house.connect(second.url)
  await house.age()
  await until(async () => {
    await confirmPayments(again, 0)
    await house.age()
    await submitPayments(again)
    return isFinal(await house.states(other))
  })
  assert.ok(house.alarms.includes('the gateway has lost a payment'))
  assert.equal(await onChain(house.bench, other.address), funds - 700n)
  assert.equal(await onChain(house.bench, terms.seller), 1_000n)
  assert.deepEqual(await findViolations(house.database), [])
})
