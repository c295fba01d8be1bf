import assert from 'node:assert/strict'
import { test } from 'node:test'
import { keccak256, toHex } from 'viem'
import { settlementGatewayAbi } from '../contracts/generated/SettlementGateway.abi.ts'
import { exampleCount } from '../test/support/examples.ts'
import {
  type AnswerBody,
  account,
  ask,
  balanceOf,
  deposit,
  ended,
  onChain,
  openBench,
  paymentBody,
  seller,
  settle,
  transferOf,
  untilBalance,
} from '../test/support/gateway.ts'
import { publicClient } from '../test/support/sandbox-chain.ts'
import { untilFits } from '../test/support/until.ts'

/** In rounds of a hundred. */
const paymentCount = 100 * exampleCount('SETTLE_HUNDREDS', { short: 3, full: 10 })

test('a payment is accepted immediately, settled on chain, and found by id and by payer and nonce', async (t) => {
  const bench = await openBench(t)
  const gateway = await bench.start()
  const payer = account('payer')
  await deposit(bench, payer, 5_000_000n)
  await untilBalance(gateway.url, payer.address, '5')
  const body = await paymentBody(bench.wallet, payer, { value: 1_250_000n })
  const id = await settle(gateway.url, body)
  assert.match(id, /^[0-9a-f-]{36}$/)
  const taken = await transferOf(gateway.url, id)
  assert.equal(taken.amount, '1250000')
  const done = await ended(gateway.url, id)
  assert.equal(done.status, 'completed')
  assert.equal(done.batchId, '1')
  assert.match(done.transactionHash, /^0x[0-9a-f]{64}$/)
  assert.equal(await onChain(bench, payer.address), 3_750_000n)
  assert.equal(await onChain(bench, seller.address), 1_250_000n)
  await untilBalance(gateway.url, seller.address, '1.25')
  const { nonce } = body.paymentPayload.payload.authorization
  const { body: found } = await ask(gateway.url, `/v1/x402/transfers?from=${payer.address}&nonce=${nonce}`)
  assert.deepEqual(idsOf(found), [id])
  const again = await ask(gateway.url, '/v1/x402/settle', body)
  assert.equal(again.status, 400)
  assert.deepEqual([again.body.success, again.body.errorReason], [false, 'nonce_already_used'])
  assert.deepEqual(bench.alarms, [])
})

// The promise to the seller: every accepted payment can be paid, for any caller and any concurrency.
test('of concurrent payments to two gateways, as many are accepted as the balance covers', async (t) => {
  const bench = await openBench(t)
  const gateways = [await bench.start({ batchMs: 3_000 }), await bench.start({ batchMs: 3_000 })]
  const payer = account('payer')
  await deposit(bench, payer, 10_500n)
  await untilBalance(gateways[0]!.url, payer.address, '0.0105')
  const bodies = await Promise.all(
    Array.from({ length: 40 }, () => paymentBody(bench.wallet, payer, { value: 1_000n })),
  )
  const answers = await Promise.all(bodies.map((body, index) => ask(gateways[index % 2]!.url, '/v1/x402/settle', body)))
  const taken = answers.filter(({ body }) => body.success)
  assert.equal(taken.length, 10)
  const reasons = new Set(answers.filter(({ body }) => !body.success).map(({ body }) => body.errorReason))
  assert.deepEqual([...reasons], ['insufficient_balance'])
  assert.equal(await balanceOf(gateways[1]!.url, payer.address), '0.0005')
  for (const { body } of taken) assert.equal((await ended(gateways[1]!.url, body.transaction)).status, 'completed')
  assert.equal(await onChain(bench, seller.address), 10_000n)
  assert.equal(await onChain(bench, payer.address), 500n)
})

test('one payment sent many times concurrently is accepted once', async (t) => {
  const bench = await openBench(t)
  const gateways = [await bench.start(), await bench.start()]
  const payer = account('payer')
  await deposit(bench, payer, 10_000n)
  await untilBalance(gateways[0]!.url, payer.address, '0.01')
  const body = await paymentBody(bench.wallet, payer)
  const answers = await Promise.all(
    Array.from({ length: 20 }, (_, index) => ask(gateways[index % 2]!.url, '/v1/x402/settle', body)),
  )
  assert.equal(answers.filter((answer) => answer.body.success).length, 1)
  const { transaction } = answers.find((answer) => answer.body.success)!.body
  assert.equal((await ended(gateways[0]!.url, transaction)).status, 'completed')
  assert.equal(await onChain(bench, seller.address), 1_000n)
})

test('a payer without a deposit cannot pay', async (t) => {
  const bench = await openBench(t)
  const { url } = await bench.start()
  await untilFits(
    () => ask(url, '/v1/x402/verify', {}),
    ({ status }) => status === 200,
  )
  const body = await paymentBody(bench.wallet, account('nobody'))
  // No payment is accepted before the chain has been read.
  const answer = await untilFits(
    () => ask(url, '/v1/x402/settle', body),
    ({ status }) => status !== 503,
  )
  assert.deepEqual([answer.status, answer.body.errorReason], [400, 'insufficient_balance'])
})

test(`${paymentCount} payments of many payers settle with exact sums on chain, each payer netted`, async (t) => {
  const bench = await openBench(t)
  const { url } = await bench.start({ batchMs: 200 })
  const payers = Array.from({ length: 8 }, (_, index) => account(`payer ${index}`))
  for (const payer of payers) await deposit(bench, payer, 1_000_000n)
  for (const payer of payers) await untilBalance(url, payer.address, '1')
  const spent = new Map(payers.map(({ address }) => [address, 0n]))
  const ids: string[] = []
  for (let round = 0; round < paymentCount / 100; round += 1) {
    const bodies = await Promise.all(
      Array.from({ length: 100 }, (_, index) => {
        const payer = payers[(index * 7 + round) % payers.length]!
        const value = BigInt(1 + ((index * 31 + round * 17) % 500))
        spent.set(payer.address, spent.get(payer.address)! + value)
        const receiptHash = index % 3 === 0 ? keccak256(toHex(`receipt ${round} ${index}`)) : undefined
        return paymentBody(bench.wallet, payer, { value, ...(receiptHash === undefined ? {} : { receiptHash }) })
      }),
    )
    ids.push(...(await Promise.all(bodies.map((body) => settle(url, body)))))
  }
  await untilFits(
    () => ask(url, `/v1/x402/transfers?to=${seller.address}&status=received&pageSize=1`),
    ({ body }) => body.transfers.length === 0,
  )
  for (const id of ids) assert.equal((await ended(url, id)).status, 'completed')
  for (const [address, value] of spent) assert.equal(await onChain(bench, address), 1_000_000n - value)
  const total = [...spent.values()].reduce((sum, value) => sum + value)
  assert.equal(await onChain(bench, seller.address), total)
  await checkBatches(url, total)
  await checkPlaces(url, ids.slice(0, 100))
  await checkReceipt(bench.chain.url, bench.wallet, url, ids[0]!)
  await checkNetting(bench.chain.url, bench.wallet, payers.length)
  assert.deepEqual(bench.alarms, [])
})

/** What the gateway reports about its batches adds up, and says what they cost. */
async function checkBatches(url: string, total: bigint): Promise<void> {
  const { body } = await ask(url, '/v1/batches')
  const batches = body.batches as AnswerBody[]
  assert.equal(
    batches.reduce((sum, { settledValue }) => sum + BigInt(settledValue), 0n),
    total,
  )
  assert.equal(
    batches.reduce((sum, { rowCount }) => sum + rowCount, 0),
    paymentCount,
  )
  for (const { gasUsed, gasCostWei, rowCount } of batches) {
    assert.ok(rowCount <= 250)
    assert.equal(BigInt(gasCostWei), BigInt(gasUsed) * 20_000_000_000n)
  }
}

/** Each payment with a receipt has its position in the batch, and no two have the same. */
async function checkPlaces(url: string, ids: readonly string[]): Promise<void> {
  const sizes = new Map<string, number>()
  const { body } = await ask(url, '/v1/batches')
  for (const { batchId, rowCount } of body.batches as AnswerBody[]) sizes.set(String(batchId), rowCount)
  const taken = new Set<string>()
  for (const [index, id] of ids.entries()) {
    const { batchId, batchPlace } = await transferOf(url, id)
    if (index % 3 !== 0) {
      assert.equal(batchPlace, undefined)
      continue
    }
    assert.equal(batchPlace.size, sizes.get(batchId))
    assert.ok(batchPlace.position >= 1 && batchPlace.position <= batchPlace.size)
    taken.add(`${batchId} ${batchPlace.position}`)
  }
  assert.equal(taken.size, Math.ceil(ids.length / 3))
}

/** The gateway's proof leads from the receipt to the root on chain. */
async function checkReceipt(chainUrl: string, wallet: `0x${string}`, url: string, id: string): Promise<void> {
  const { receipt, batchId } = await transferOf(url, id)
  assert.equal(receipt.hash, keccak256(toHex('receipt 0 0')))
  let node = keccak256(receipt.hash)
  for (const sibling of receipt.proof) {
    const [low, high] = [node, sibling].sort()
    node = keccak256(`${low}${high!.slice(2)}` as `0x${string}`)
  }
  assert.equal(node, receipt.root)
  const [settled] = await publicClient(chainUrl).getContractEvents({
    address: wallet,
    abi: settlementGatewayAbi,
    eventName: 'BatchSettled',
    args: { batchId: BigInt(batchId) },
    fromBlock: 0n,
  })
  assert.equal(settled!.args.receiptRoot, receipt.root)
}

/** One payment of a payer per transfer, and one credit of the seller per batch at most per payer. */
async function checkNetting(chainUrl: string, wallet: `0x${string}`, payerCount: number): Promise<void> {
  const filter = { address: wallet, abi: settlementGatewayAbi, fromBlock: 0n } as const
  const client = publicClient(chainUrl)
  const batches = await client.getContractEvents({ ...filter, eventName: 'BatchSettled' })
  const credits = await client.getContractEvents({ ...filter, eventName: 'PayeeCredited' })
  assert.ok(credits.length <= batches.length * payerCount, `${credits.length} credits in ${batches.length} batches`)
}

test('many payments in one call are accepted or refused independently', async (t) => {
  const bench = await openBench(t)
  const { url } = await bench.start()
  const payer = account('payer')
  await deposit(bench, payer, 5_000n)
  await untilBalance(url, payer.address, '0.005')
  const body = (value: bigint) => paymentBody(bench.wallet, payer, { value })
  const [first, second, tooMuch, forged] = await Promise.all([body(1_000n), body(2_000n), body(9_000n), body(1_000n)])
  forged.paymentPayload.payload.signature = first.paymentPayload.payload.signature
  const many = (payments: readonly unknown[], authorization?: string) =>
    ask(url, '/v1/x402/settle-many', { payments }, authorization)
  const answer = await many([first, tooMuch, second, forged, first, {}])
  const results = answer.body.results as AnswerBody[]
  assert.deepEqual(
    results.map(({ success, errorReason }) => (success ? 'taken' : errorReason)),
    ['taken', 'insufficient_balance', 'taken', 'invalid_signature', 'nonce_already_used', 'invalid_payload'],
  )
  for (const { transaction } of [results[0]!, results[2]!]) {
    assert.equal((await ended(url, transaction)).status, 'completed')
  }
  assert.equal(await onChain(bench, seller.address), 3_000n)
  assert.equal((await many([])).status, 400)
  assert.equal((await many(Array.from({ length: 101 }, () => ({})))).status, 400)
  assert.equal((await many([second], '')).status, 401, 'each costs more than it brings: for the service alone')
})

test('transfers are listed newest first, page by page in both directions', async (t) => {
  const bench = await openBench(t)
  const { url } = await bench.start()
  const payer = account('payer')
  await deposit(bench, payer, 10_000n)
  await untilBalance(url, payer.address, '0.01')
  const ids: string[] = []
  for (let count = 0; count < 5; count += 1) ids.unshift(await settle(url, await paymentBody(bench.wallet, payer)))
  const pages: string[][] = []
  let path: string | undefined = `/v1/x402/transfers?from=${payer.address}&pageSize=2`
  let previous: string | undefined
  while (path !== undefined) {
    const { body, link } = await ask(url, path)
    pages.push(idsOf(body))
    path = /<([^>]+)>; rel="next"/.exec(link ?? '')?.[1]
    previous = /<([^>]+)>; rel="prev"/.exec(link ?? '')?.[1]
  }
  assert.deepEqual(pages, [ids.slice(0, 2), ids.slice(2, 4), ids.slice(4)])
  assert.deepEqual(idsOf((await ask(url, previous!)).body), ids.slice(2, 4))
  for (const query of ['network=eip155:1', 'token=EURC', `to=${payer.address}`, 'endDate=2020-01-01T00:00:00Z']) {
    assert.deepEqual(idsOf((await ask(url, `/v1/x402/transfers?${query}`)).body), [])
  }
  for (const query of ['status=completed', 'status=no&from=0x', 'pageSize=0', 'pageAfter=1', 'nonce=0x1', 'from=me']) {
    assert.equal((await ask(url, `/v1/x402/transfers?${query}`)).status, 400, query)
  }
  assert.equal((await ask(url, `/v1/x402/transfers/${ids[0]!.replace(/^.{8}/, '00000000')}`)).status, 404)
})

function idsOf(body: AnswerBody): string[] {
  return body.transfers.map(({ id }: { id: string }) => id)
}
