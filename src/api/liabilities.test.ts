import assert from 'node:assert/strict'
import { test } from 'node:test'
import { DashboardClient, type Json, signInNew } from '../../test/support/dashboard-client.ts'
import { createCustodian, keys, terms } from '../../test/support/signing.ts'
import { serviceSuite } from '../../test/support/suites.ts'
import { fundsContracts } from '../openapi/contracts/funds.ts'
import { verifyLiabilityProof } from '../receipts/liability-proof.ts'
import { takeSnapshot } from '../settlement/liabilities.ts'
import { publishTerms } from '../settlement/published-terms.ts'
import { receiptCrypto } from '../signer/receipt-crypto.ts'
import { askCustodian, createSigner } from '../signer/signer.ts'

const suite = serviceSuite({ TRUST_PROXY: '1' })
const path = '/api/liabilities/proof'
const issuer = keys.ofRole('issuer').address

test('a customer gets the proof of their own balance, with a session or an API key, and of no other', async (t) => {
  const { service } = suite
  const { database } = service
  const client = await signInNew(service, '23.98')
  const other = await signInNew(service, '5')
  const empty = await signInNew(service)
  const { secret } = await client.post('/api/keys', { name: 'proof' })
  assert.deepEqual(await client.refusal('GET', path), [404, 'not_found'])
  assert.equal((await client.get('/api/solvency')).liabilities, undefined)

  await publishTerms(database, { terms, issuer })
  const signer = createSigner({ ask: askCustodian(createCustodian(t)), onFault: assert.ifError })
  const report = { block: '9', on_chain_atomic: '29000000', seller_atomic: '0', owed_back_atomic: '0' }
  await takeSnapshot({ database, signer, signingTerms: terms, issuer }, report)

  const withKey = async (headers: Record<string, string>) =>
    (await (await fetch(`${service.origin}${path}`, { headers })).json()) as Json
  const proofs: Json[] = [await client.get(path), await withKey({ authorization: `Bearer ${secret}` })]
  for (const proof of proofs) {
    fundsContracts.getLiabilityProof.answer.parse(proof)
    assert.deepEqual([proof.leaf.account, proof.leaf.amount_atomic], [client.accountId, '23980000'])
    assert.equal(proof.snapshot.sum_atomic, '28980000')
    const checks = await verifyLiabilityProof(proof, receiptCrypto)
    assert.ok(
      checks.every(({ ok }) => ok),
      JSON.stringify(checks),
    )
  }
  assert.equal((await other.get(path)).leaf.account, other.accountId)
  assert.equal((await empty.get(path)).leaf, null)
  const { liabilities } = fundsContracts.getSolvency.answer.parse(
    await new DashboardClient(service).get('/api/solvency'),
  )
  assert.deepEqual(liabilities, proofs[0].snapshot)
  assert.deepEqual(await client.get(`${path}?number=${liabilities!.number}`), proofs[0])

  const stranger = new DashboardClient(service)
  assert.deepEqual(await stranger.refusal('GET', path), [401, 'session_required'])
  for (const number of ['1', '999999999999999']) {
    assert.deepEqual(await client.refusal('GET', `${path}?number=${number}`), [404, 'not_found'])
  }
  for (const number of ['', '-1', '1.5', 'latest', '1'.repeat(30)]) {
    assert.deepEqual(await client.refusal('GET', `${path}?number=${number}`), [400, 'invalid_value'], number)
  }
})
