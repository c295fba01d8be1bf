import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  account,
  ask,
  deposit,
  ended,
  onChain,
  openBench,
  paymentBody,
  seller,
  token,
  untilBalance,
} from '../test/support/gateway.ts'

// A11: an attacker with a deposit of 0.5 USDC made our relayer put 250 payments to the attacker's other address on chain, and every
// account's payments were publicly readable.

const payer = account('payer')
const stranger = account('stranger')
const nobody = ''

test('payments are settled only to the gateway’s payees and from them', async (t) => {
  const bench = await openBench(t)
  const { url } = await bench.start({ payees: [seller.address.toUpperCase().replace('0X', '0x')] })
  await deposit(bench, payer, 10_000n)
  await deposit(bench, seller, 10_000n)
  await untilBalance(url, payer.address, '0.01')
  await untilBalance(url, seller.address, '0.01')

  const foreign = await paymentBody(bench.wallet, payer, { to: stranger.address })
  for (const authorization of [`Bearer ${token}`, nobody]) {
    const settled = await ask(url, '/v1/x402/settle', foreign, authorization)
    assert.deepEqual(
      [settled.status, settled.body.success, settled.body.errorReason],
      [400, false, 'payee_not_allowed'],
    )
    const verified = await ask(url, '/v1/x402/verify', foreign, authorization)
    assert.deepEqual([verified.body.isValid, verified.body.invalidReason], [false, 'payee_not_allowed'])
  }
  const paid = await ask(url, '/v1/x402/settle', await paymentBody(bench.wallet, payer, { value: 2_000n }), nobody)
  const returned = await ask(
    url,
    '/v1/x402/settle',
    await paymentBody(bench.wallet, seller, { to: payer.address, value: 2_000n }),
  )
  for (const { body } of [paid, returned]) assert.equal((await ended(url, body.transaction)).status, 'completed')
  assert.equal(await onChain(bench, payer.address), 10_000n)
  assert.equal(await onChain(bench, stranger.address), 0n)
})

test('payments below 0.002 USDC, the most that their gas costs, need the token', async (t) => {
  const bench = await openBench(t)
  const { url } = await bench.start()
  await deposit(bench, payer, 10_000n)
  await untilBalance(url, payer.address, '0.01')
  const dust = await paymentBody(bench.wallet, payer, { value: 1_999n })
  const refused = await ask(url, '/v1/x402/settle', dust, nobody)
  assert.deepEqual([refused.status, refused.body.errorReason], [400, 'amount_too_small'])
  assert.equal((await ask(url, '/v1/x402/settle', dust, 'Bearer wrong')).status, 401)
  assert.equal((await ask(url, '/v1/x402/settle', dust)).body.success, true)
})

test('only the service can read payments', async (t) => {
  const bench = await openBench(t)
  const { url } = await bench.start()
  await deposit(bench, payer, 10_000n)
  await untilBalance(url, payer.address, '0.01')
  const { body } = await ask(url, '/v1/x402/settle', await paymentBody(bench.wallet, payer))
  const paths = [`/v1/x402/transfers?from=${payer.address}`, `/v1/x402/transfers/${body.transaction}`, '/v1/batches']
  for (const path of paths) {
    for (const authorization of [nobody, 'Bearer wrong', `Bearer ${token}x`, token]) {
      const answer = await ask(url, path, undefined, authorization)
      assert.deepEqual([answer.status, answer.body.code], [401, 401], `${path} with ${authorization}`)
    }
    assert.equal((await ask(url, path)).status, 200, path)
  }
  for (const path of ['/v1/x402/supported', '/v1/info']) {
    assert.equal((await ask(url, path, undefined, nobody)).status, 200, path)
  }
})
