import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Page } from 'playwright-core'
import { dashboardSuite } from './dashboard.ts'
import { openAccountWithPasskey } from './person.ts'
import { installWallet } from './wallet.ts'

// As on a real chain: an unconfirmed owner address becomes usable after a day.

const dashboard = dashboardSuite({ OWNER_COOLDOWN: String(24 * 3_600_000) })
const owner = '0x70997970C51812dc3A010C7d01b50e0d17dc79C8'

/** A passkey account with 25 USDC and no owner address, at its settings. */
async function openAccountWithMoney(page: Page) {
  await openAccountWithPasskey(dashboard, page)
  await page.goto(`${dashboard.origin}/funds`)
  await page.getByRole('button', { name: 'Get 25 test USDC', exact: true }).click()
  await page.locator('[data-testid=balance-pill][data-available="25000000"]').waitFor()
  await page.goto(`${dashboard.origin}/settings`)
  return page.getByTestId('owner-settings')
}

test('the first owner address of an account with money counts at once when its passkey confirms it in the settings', async () => {
  const page = await dashboard.open()
  const panel = await openAccountWithMoney(page)
  await panel.getByLabel('Address').fill('0x1234')
  await panel.getByRole('button', { name: 'Confirm with passkey' }).click()
  await panel.getByText('Enter an address').waitFor()
  await panel.getByLabel('Address').fill(owner)
  const asked = page.waitForRequest((request) => request.url().endsWith('/api/owner'))
  await panel.getByRole('button', { name: 'Confirm with passkey' }).click()
  const { address, proof } = (await asked).postDataJSON() as { address: string; proof: { credential: { id: string } } }
  assert.equal(address, owner)
  assert.ok(proof.credential.id)
  await panel.getByText('Withdrawals go to').waitFor()
  const { account } = await (await page.request.get(`${dashboard.origin}/api/session`)).json()
  assert.equal(account.owner_address, owner.toLowerCase())
  assert.ok(Date.parse(account.owner_usable_from) <= Date.now())

  // A change of it waits, whatever is signed: nothing to confirm is offered.
  await panel.getByLabel('Another address').fill(`0x${'b'.repeat(40)}`)
  assert.equal(await panel.getByRole('button', { name: /Confirm/ }).count(), 0)
})

test('without a confirmation the first owner address of an account with money is saved, and waits', async () => {
  const page = await dashboard.open()
  const panel = await openAccountWithMoney(page)
  await panel.getByLabel('Address').fill(owner)
  await panel.getByRole('button', { name: 'Save without confirming' }).click()
  await panel.getByText(/Withdrawals go to/).waitFor()
  const { account } = await (await page.request.get(`${dashboard.origin}/api/session`)).json()
  assert.ok(Date.parse(account.owner_usable_from) > Date.now() + 23 * 3_600_000)
  await panel.getByText(/from .* on/).waitFor()
})

test('a wallet that the account has had for a day confirms the address by a signature that names it', async () => {
  const page = await dashboard.open()
  const wallet = await installWallet(page)
  const panel = await openAccountWithMoney(page)
  const { account: opened } = await (await page.request.get(`${dashboard.origin}/api/session`)).json()
  // What is added in the first seconds of an account was there when it was opened.
  await dashboard.database.query(`update accounts set created_at = created_at - interval '1 hour' where id = $1`, [
    opened.id,
  ])
  await dashboard.database.query(
    `update memberships set owner_since = owner_since - interval '1 hour' where account_id = $1`,
    [opened.id],
  )
  await page.getByRole('button', { name: 'Add wallet' }).click()
  await page.getByRole('dialog', { name: 'Add a wallet' }).getByRole('button', { name: 'Test Wallet' }).click()
  await panel.getByRole('button', { name: 'Confirm with Test Wallet' }).waitFor()
  await panel.getByLabel('Address').fill(owner)
  await panel.getByRole('button', { name: 'Confirm with Test Wallet' }).click()
  await panel.getByRole('alert').filter({ hasText: 'was added recently' }).waitFor()

  await dashboard.database.query(`update wallets set added_at = added_at - interval '2 days' where address = $1`, [
    wallet.address.toLowerCase(),
  ])
  await panel.getByRole('button', { name: 'Confirm with Test Wallet' }).click()
  await panel.getByText('Withdrawals go to').waitFor()
  const { account } = await (await page.request.get(`${dashboard.origin}/api/session`)).json()
  assert.equal(account.owner_address, owner.toLowerCase())
  assert.ok(Date.parse(account.owner_usable_from) <= Date.now())
  // The refusal above has status 401, like an expired session: only the latter asks for a sign-in.
  assert.equal(await page.getByTestId('sign-in-again').count(), 0)
})

test('a passkey of the first sign-in is removed after a confirmation with a passkey, a new wallet without', async () => {
  const page = await dashboard.open()
  await installWallet(page)
  await openAccountWithMoney(page)
  await page.getByRole('button', { name: 'Remove Passkey' }).click()
  const dialog = page.getByRole('dialog', { name: 'Remove passkey' })
  await dialog.getByText('Confirm it with a passkey or wallet').waitFor()
  await dialog.getByRole('button', { name: 'Remove passkey' }).click()
  await dialog.getByRole('alert').filter({ hasText: 'This is your last way to sign in.' }).waitFor()
  await dialog.getByRole('button', { name: 'Cancel' }).click()
  await page.getByRole('button', { name: 'Add wallet' }).click()
  await page.getByRole('dialog', { name: 'Add a wallet' }).getByRole('button', { name: 'Test Wallet' }).click()
  await page.getByRole('button', { name: /^Remove 0x/ }).waitFor()
  await page.getByRole('button', { name: 'Remove Passkey' }).click()
  const asked = page.waitForRequest((request) => request.method() === 'DELETE')
  await dialog.getByRole('button', { name: 'Remove passkey' }).click()
  assert.ok((await asked).postDataJSON().proof.credential.id)
  await page.getByRole('button', { name: 'Remove Passkey', exact: true }).waitFor({ state: 'detached' })
})
