import assert from 'node:assert/strict'
import { test } from 'node:test'
import { terms } from '../../test/support/signing.ts'
import { ledgerSuite } from '../../test/support/suites.ts'
import { readConfig } from '../config/config.ts'
import { publishTerms } from '../settlement/published-terms.ts'
import type { Address } from '../signer/address.ts'
import { openX402 } from './open-x402.ts'

const ledger = ledgerSuite()
const issuer = `0x${'1'.repeat(40)}` as Address
const endpoints = {
  CHAIN_RPC_URL: 'http://127.0.0.1:1',
  GATEWAY_URL: 'http://127.0.0.1:1',
  USDC_ADDRESS: terms.usdc.address,
  GATEWAY_WALLET_ADDRESS: terms.gatewayWallet,
}

/** A machine that does not settle. `wait` lets time pass there. */
function openNode(stack: AsyncDisposableStack, environment: Readonly<Record<string, string>>) {
  const { database } = ledger
  const log = { error() {} } as never
  const context = {
    config: readConfig({ ROLES: 'web', ...environment }),
    log,
    stack,
    onProgress() {},
    signal: undefined,
  }
  const databases = { lookUps: database, ledger: database } as never
  const holds = {} as never
  let nowMs = 0
  const parts = openX402(
    context,
    { money: undefined, databases, holds, failpoint() {}, publicUrl: 'http://penny' },
    () => nowMs,
  )
  return { parts, wait: (ms: number) => (nowMs += ms) }
}

const refusal = (part: RegExp) => (error: Error & { readonly code?: string }) =>
  error.code === 'settlement_delayed' && part.test(error.message) && error.message.includes('Nothing was paid')

test('a machine that does not settle asks wallets to pay the seller of the one that does', async () => {
  await using stack = new AsyncDisposableStack()
  await ledger.database.query('delete from settlement_terms')
  const { parts, wait } = openNode(stack, endpoints)
  await assert.rejects(parts(), refusal(/settlement has not started yet/))
  await publishTerms(ledger.database, { terms, issuer })
  // A missing row is looked for once a second at most.
  await assert.rejects(parts(), refusal(/settlement has not started yet/))
  wait(1_001)
  const first = await parts()
  assert.deepEqual(first.terms.signing, terms)
  assert.equal(await parts(), first)
  const seller = `0x${'5'.repeat(40)}` as Address
  await publishTerms(ledger.database, { terms: { ...terms, seller }, issuer })
  wait(10_001)
  assert.equal((await parts()).terms.signing.seller, seller)
})

test('a machine without a gateway, or with other contracts, takes no payment and says what to set', async () => {
  await using stack = new AsyncDisposableStack()
  await publishTerms(ledger.database, { terms, issuer })
  await assert.rejects(openNode(stack, {}).parts(), refusal(/set CHAIN_RPC_URL, GATEWAY_URL/))
  for (const name of ['USDC_ADDRESS', 'GATEWAY_WALLET_ADDRESS']) {
    const { parts } = openNode(stack, { ...endpoints, [name]: `0x${'7'.repeat(40)}` })
    await assert.rejects(parts(), refusal(new RegExp(`${name} of this machine`)))
  }
})
