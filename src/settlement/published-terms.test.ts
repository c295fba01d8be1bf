import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { charge, hold, openLedger, openPayer, settle } from '../../test/support/ledger.ts'
import { type TestDatabase, testDatabase } from '../../test/support/postgres.ts'
import { keys, ownerAddress, payoutAddress, terms } from '../../test/support/signing.ts'
import { newWallet, signedPayment } from '../../test/support/wallet-payments.ts'
import { claimPayment } from '../ledger/x402-payments.ts'
import { findPublishedTerms, publishTerms } from './published-terms.ts'

let ledger: TestDatabase
before(async () => {
  ledger = await testDatabase()
})
after(() => ledger.drop())

const issuer = keys.ofRole('issuer').address

// A machine that waited for its turn may have started before the ledger had terms, or before a payment was made.
test('terms are not replaced by those of another key or contract', async () => {
  const { database } = ledger
  await publishTerms(database, { terms, issuer })
  const other = { ...terms, gatewayWallet: payoutAddress }
  await assert.rejects(publishTerms(database, { terms, issuer: ownerAddress }), /master key is not the one of this/)
  await assert.rejects(publishTerms(database, { terms: other, issuer }), /^OtherContractError: GATEWAY_WALLET_ADDRESS/)
  const others = { ...terms, usdc: { ...terms.usdc, address: payoutAddress } }
  await assert.rejects(publishTerms(database, { terms: others, issuer }), /^OtherContractError: USDC_ADDRESS is/)
  await publishTerms(database, { terms: { ...terms, gatewayDomain: 7 }, issuer })
  assert.equal((await findPublishedTerms(database))!.terms.gatewayDomain, 7, 'a correction of the other terms is taken')
  await publishTerms(database, { terms, issuer })
})

// The gateway has the payment to the old seller. Sent again to the new one, it would be taken for a different payment.
test('the seller changes only while no payment of an account or a wallet is open', async () => {
  const { database } = ledger
  const change = () => publishTerms(database, { terms: { ...terms, seller: ownerAddress }, issuer })
  const holds = await openLedger(database)
  const payer = await openPayer(database, 10_000n)
  await holds.end(charge(await hold(holds, payer, 1_000n), 900n))
  await settle(database, [payer], 'unknown')
  await claimPayment(database, signedPayment(await newWallet(database), 100n))
  await assert.rejects(change(), new RegExp(`but payments to the seller ${terms.seller} are still open \\(2\\)`))
  await database.query("update payments set state = 'completed'")
  await assert.rejects(change(), /still open \(1\)/)
  await publishTerms(database, { terms, issuer })
  await database.query('delete from transfers')
  await change()
  assert.equal((await findPublishedTerms(database))!.terms.seller, ownerAddress)
})
