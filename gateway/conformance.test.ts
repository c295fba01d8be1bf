import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { type TestContext, test } from 'node:test'
import { BatchEvmScheme } from '@circle-fin/x402-batching/client'
import { BatchFacilitatorClient, createGatewayMiddleware, GatewayEvmScheme } from '@circle-fin/x402-batching/server'
import { x402Client } from '@x402/core/client'
import { decodePaymentRequiredHeader, decodePaymentResponseHeader, encodePaymentSignatureHeader } from '@x402/core/http'
import { x402ResourceServer } from '@x402/core/server'
import type { PrivateKeyAccount } from 'viem/accounts'
import { atEnd } from '../test/support/at-end.ts'
import {
  account,
  deposit,
  ended,
  type GatewayBench,
  onChain,
  openBench,
  paymentBody,
  seller,
  untilBalance,
} from '../test/support/gateway.ts'
import { chainId } from '../test/support/sandbox-chain.ts'

// Circle's own client decides: if it accepts our gateway as Circle's, our client accepts it too.

const network = `eip155:${chainId}` as const

test('Circle’s facilitator client finds our network, verifies a payment and settles it once', async (t) => {
  const { bench, url, payer } = await openShop(t)
  const facilitator = new BatchFacilitatorClient({ url })
  const { kinds } = await facilitator.getSupported()
  assert.deepEqual(
    kinds.map((kind) => [kind.x402Version, kind.scheme, kind.network]),
    [[2, 'exact', network]],
  )
  const { paymentPayload, paymentRequirements } = await paymentBody(bench.wallet, payer, { value: 7_000n })
  assert.deepEqual(await facilitator.verify(paymentPayload, paymentRequirements), {
    isValid: true,
    payer: payer.address,
  })
  const settled = await facilitator.settle(paymentPayload, paymentRequirements)
  assert.equal(settled.success, true)
  assert.equal(settled.network, network)
  assert.equal(settled.payer, payer.address)
  assert.equal((await ended(url, settled.transaction)).status, 'completed')
  const again = await facilitator.settle(paymentPayload, paymentRequirements)
  assert.equal(again.success, false)
  assert.equal(again.errorReason, 'nonce_already_used')
  const verified = await facilitator.verify(paymentPayload, paymentRequirements)
  assert.deepEqual([verified.isValid, verified.invalidReason], [false, 'nonce_already_used'])
  assert.equal(await onChain(bench, seller.address), 7_000n)
})

test('Circle’s buyer pays Circle’s seller through our gateway', async (t) => {
  const { bench, url, payer } = await openShop(t)
  const gateway = createGatewayMiddleware({ sellerAddress: seller.address, facilitatorUrl: url, networks: network })
  const shop = createServer((request, response) => {
    void gateway.require('$0.01')(request, response, () => response.end('served'))
  })
  shop.listen(0, '127.0.0.1')
  await once(shop, 'listening')
  atEnd(t, () => shop.close())
  const address = `http://127.0.0.1:${(shop.address() as AddressInfo).port}/`

  const unpaid = await fetch(address)
  assert.equal(unpaid.status, 402)
  const required = decodePaymentRequiredHeader(unpaid.headers.get('payment-required')!)
  const payload = await buyer(payer).createPaymentPayload(required)
  const paid = await fetch(address, { headers: { 'payment-signature': encodePaymentSignatureHeader(payload) } })
  assert.equal(await paid.text(), 'served')
  const response = decodePaymentResponseHeader(paid.headers.get('payment-response')!)
  assert.equal(response.success, true)
  assert.equal((await ended(url, response.transaction)).status, 'completed')
  assert.equal(await onChain(bench, seller.address), 10_000n)
})

test('the x402 resource server takes our gateway for a facilitator', async (t) => {
  const { url, payer } = await openShop(t)
  const server = new x402ResourceServer([new BatchFacilitatorClient({ url }) as never])
  server.register(network, new GatewayEvmScheme())
  await server.initialize()
  const [requirement] = await server.buildPaymentRequirements({
    scheme: 'exact',
    network,
    payTo: seller.address,
    price: '$0.02',
    maxTimeoutSeconds: 604_900,
  })
  const payload = await buyer(payer).createPaymentPayload({
    x402Version: 2,
    resource: { url: 'http://example/', description: 'an answer', mimeType: 'application/json' },
    accepts: [requirement!],
  })
  assert.equal((await server.verifyPayment(payload, requirement!)).isValid, true)
  const settled = await server.settlePayment(payload, requirement!)
  assert.equal(settled.success, true)
  assert.equal((await ended(url, settled.transaction)).status, 'completed')
})

async function openShop(
  t: TestContext,
): Promise<{ readonly bench: GatewayBench; readonly url: string; readonly payer: PrivateKeyAccount }> {
  const bench = await openBench(t)
  const { url } = await bench.start()
  const payer = account('payer')
  await deposit(bench, payer, 1_000_000n)
  await untilBalance(url, payer.address, '1')
  return { bench, url, payer }
}

function buyer(payer: PrivateKeyAccount): x402Client {
  return new x402Client()
    .register('eip155:*', new BatchEvmScheme(payer) as never)
    .setSpendControls({ allowedAssets: true })
}
