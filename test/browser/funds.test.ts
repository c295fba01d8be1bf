import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { test } from 'node:test'
import type { Page } from 'playwright-core'
import { accountId, issuer, leafNode, publish } from '../support/liabilities.ts'
import { dashboardSuite } from './dashboard.ts'
import { atOverview, availableBalance, createKey, openAccountWithPasskey, signInAsDeveloper } from './person.ts'
import { installWallet } from './wallet.ts'

const dashboard = dashboardSuite()
const recipient = '0x70997970C51812dc3A010C7d01b50e0d17dc79C8'

test('a withdrawal long after the sign-in asks for a new one over the form, and goes on with what was typed', async () => {
  const page = await dashboard.open()
  const confirm = await aboutToWithdraw(page)
  await confirm.getByText('We can’t estimate the arrival time yet').waitFor()
  await confirm.getByRole('button', { name: 'Withdraw 10 USDC' }).click()

  const again = page.getByRole('dialog', { name: 'Confirm it is you' })
  await again.waitFor()
  assert.equal(await confirm.getByLabel('Type the last four characters of the address').inputValue(), '79C8')
  assert.equal(await availableBalance(page), 25_000_000n, 'nothing has moved')
  await again.getByRole('button', { name: 'Sign in with a passkey' }).click()

  const row = page.locator('[data-testid=withdrawal-row]')
  await row.waitFor()
  await confirm.waitFor({ state: 'detached' })
  await page.locator('[data-testid=withdrawal-row][data-state=confirmed]').waitFor()
  await page.locator('[data-testid=balance-pill][data-available="15000000"]').waitFor()
  assert.equal(await row.count(), 1, 'one form is one payment')
  await page.getByTestId('withdraw').getByText('based on the one withdrawal made so far').waitFor()

  // Another amount, or the same one after it succeeded, is another withdrawal.
  await page.route('**/api/withdrawals', async (route) => {
    if (route.request().method() !== 'POST') return route.fallback()
    await route.fetch()
    await route.abort()
    await page.unroute('**/api/withdrawals')
  })
  const withdraw = async (amount: string) => {
    await page.getByTestId('withdraw').getByLabel('Amount').fill(amount)
    await page.getByRole('button', { name: 'Review withdrawal' }).click()
    await confirm.getByRole('button', { name: `Withdraw ${amount} USDC` }).click()
  }
  await withdraw('4')
  await confirm.getByText('The service did not respond').waitFor()
  await confirm.getByRole('button', { name: 'Cancel' }).click()
  for (const amount of ['3', '3']) {
    await withdraw(amount)
    await confirm.waitFor({ state: 'detached' })
  }
  await page.locator('[data-testid=balance-pill][data-available="5000000"]').waitFor()

  // The answer to the 4 was lost. Neither a reload nor another way to write the amount makes it another withdrawal.
  await page.reload()
  await page.locator('[data-testid=withdrawal-row]').nth(3).waitFor()
  await withdraw('4.0')
  await page.getByText('This withdrawal had been requested before.').first().waitFor()
  assert.equal(await row.count(), 4)
  await page.locator('[data-testid=balance-pill][data-available="5000000"]').waitFor()
  // At most three are open at a time.
  await page.locator('[data-testid=withdrawal-row][data-state=confirmed]').nth(3).waitFor()
  await withdraw('4')
  await page.locator('[data-testid=balance-pill][data-available="1000000"]').waitFor()
})

test('the form says the least withdrawal and the gateway’s fee before anything is typed', async () => {
  const page = await dashboard.open()
  await signInAsDeveloper(dashboard, page)
  // As at Circle, which takes a fee; our own gateway takes none.
  const fee = { withdrawal_min_atomic: '250001', withdrawal_fee_max_atomic: '250000' }
  await page.route('**/api/balance', async (route) => {
    const response = await route.fetch()
    await route.fulfill({ response, json: { ...(await response.json()), ...fee } })
  })
  await page.goto(`${dashboard.origin}/funds`)
  const form = page.getByTestId('withdraw')
  const hint = 'Minimum: 0.250001 USDC. The gateway fee is at most 0.250000 USDC, taken from the amount.'
  await form.getByText(hint).waitFor()
  await form.getByLabel('Amount').fill('0.25')
  await form.getByRole('button', { name: 'Review withdrawal' }).click()
  await form.getByRole('alert').first().waitFor()
  assert.equal(await page.getByRole('dialog').count(), 0)
})

test('a withdrawal whose session has ended keeps what was typed, and is sent after a new sign-in', async () => {
  const page = await dashboard.open()
  await page.clock.install()
  const confirm = await aboutToWithdraw(page)
  await page.clock.fastForward('01:01')
  await page.context().clearCookies()
  await confirm.getByRole('button', { name: 'Withdraw 10 USDC' }).click()
  const again = page.getByRole('dialog', { name: 'Your session has ended' })
  await again.getByRole('button', { name: 'Sign in with a passkey' }).click()
  await again.waitFor({ state: 'detached' })
  assert.equal(await confirm.getByLabel('Type the last four characters of the address').inputValue(), '79C8')
  await confirm.getByRole('button', { name: 'Withdraw 10 USDC' }).click()
  await page.locator('[data-testid=balance-pill][data-available="15000000"]').waitFor()
})

test('a withdrawal is confirmed by the account of the page: no other sign-in is offered or accepted, and the form stays', async () => {
  const page = await dashboard.open()
  const confirm = await aboutToWithdraw(page)
  const before = await withdrawalsEver()
  await confirm.getByRole('button', { name: 'Withdraw 10 USDC' }).click()
  const again = page.getByRole('dialog', { name: 'Confirm it is you' })
  await again.getByRole('button', { name: 'Sign in with a passkey' }).waitFor()
  assert.equal(await again.getByRole('button', { name: 'Continue as local developer' }).count(), 0)
  const refused = await page.evaluate(async () => {
    const headers = { 'x-router-person': document.documentElement.dataset.person! }
    const answer = await fetch('/api/auth/local', { method: 'POST', headers })
    return [answer.status, (await answer.json()).error.code]
  })
  assert.deepEqual(refused, [409, 'account_switched'])
  await page.keyboard.press('Escape')
  await confirm.getByRole('button', { name: 'Withdraw 10 USDC' }).waitFor()
  assert.equal(await withdrawalsEver(), before)
})

test('a wallet is brought to the chain and sends a deposit itself, which is then followed to its credit', async () => {
  const page = await dashboard.open()
  const account = await installWallet(page)
  await openAccountWithPasskey(dashboard, page)
  await page.goto(`${dashboard.origin}/funds`)
  const deposit = page.getByTestId('wallet-deposit')
  await deposit.getByRole('button', { name: 'Test Wallet' }).click()
  await deposit.getByText('The wallet has 0.000000 USDC.').waitFor()
  await deposit.getByRole('button', { name: 'Send 25 test USDC to the wallet' }).click()
  await deposit.getByText('The wallet has 25.000000 USDC.').waitFor()

  await deposit.getByLabel('Amount to deposit').fill('26')
  await deposit.getByRole('button', { name: 'Send 26 USDC' }).click()
  await deposit.getByRole('alert').filter({ hasText: 'The wallet has 25.000000 USDC.' }).waitFor()
  await deposit.getByLabel('Amount to deposit').fill('7.5')
  await deposit.getByRole('button', { name: 'Send 7.5 USDC' }).click()

  await page.locator('[data-testid=wallet-progress][data-state=credited]').waitFor()
  await page.locator('[data-testid=balance-pill][data-available="7500000"]').waitFor()
  // The wallet paid its gas from the same balance.
  await deposit.getByText(/The wallet has 17\.49\d+ USDC\./).waitFor()
  const { data } = await page.evaluate(async () => (await fetch('/api/deposits')).json())
  assert.deepEqual(
    data.map(({ sender, amount_atomic }: Record<string, string>) => [sender, amount_atomic]),
    [[account.address.toLowerCase(), '7500000']],
  )

  await deposit.getByLabel('Amount to deposit').fill('0.05')
  await deposit.getByRole('button', { name: 'Send 0.05 USDC' }).click()
  await page
    .locator('[data-testid=deposit-row][data-state=seen]')
    .getByText('Less than 0.1 USDC: it will be credited once your deposits add up to that.')
    .waitFor()
})

test('a wallet whose owner declines sends nothing', async () => {
  const page = await dashboard.open()
  await installWallet(page, { refuses: true })
  await openAccountWithPasskey(dashboard, page)
  await page.goto(`${dashboard.origin}/funds`)
  await page.getByTestId('wallet-deposit').getByRole('button', { name: 'Test Wallet' }).click()
  await page.getByText('You declined switching the chain. Nothing was sent.').waitFor()
  assert.equal(await availableBalance(page), 0n)
})

test('a monthly statement adds up on the page, on paper and in a spreadsheet', async () => {
  const page = await dashboard.open()
  await signInAsDeveloper(dashboard, page)
  await chat()
  await page.goto(`${dashboard.origin}/funds`)
  await page.getByRole('link', { name: 'Monthly statement' }).click()
  await page.getByTestId('statement').getByText('add up to the current balance.').waitFor()
  const opening = await amountOf(page, 'opening')
  const closing = await amountOf(page, 'closing')
  const lines = await page
    .getByTestId('statement-line')
    .evaluateAll((rows) => rows.map((row) => row.getAttribute('data-amount')!))
  assert.ok(lines.length >= 2, 'a deposit and a charge')
  assert.equal(
    lines.reduce((sum, line) => sum + BigInt(line), opening),
    closing,
  )
  assert.equal(await availableBalance(page), closing, 'nothing is held')

  const [download] = await Promise.all([page.waitForEvent('download'), page.getByTestId('statement-csv').click()])
  const rows = (await readFile(await download.path(), 'utf8')).trim().split('\r\n')
  const amounts = rows.slice(1).map((row) => BigInt(row.split(',')[4]!))
  assert.equal(
    amounts.slice(0, -1).reduce((sum, amount) => sum + amount),
    amounts.at(-1),
  )

  await page.emulateMedia({ media: 'print', colorScheme: 'dark' })
  assert.ok(await page.getByTestId('statement').isVisible())
  assert.ok(await page.getByTestId('balance-pill').isHidden())
  assert.ok(await page.getByRole('navigation', { name: 'Pages' }).first().isHidden())
})

test('a page that lacks a part of what it shows says so, and gets it with Retry', async () => {
  const page = await dashboard.open()
  await signInAsDeveloper(dashboard, page)
  const refusal = { error: { message: 'Not today.', code: 'not_found', request_id: '' } }
  for (const [lacking, path, whole] of [
    ['**/api/withdrawals*', 'funds', page.getByTestId('deposit-row').first()],
    ['**/v1/models', 'playground', page.getByLabel('Pay with key')],
  ] as const) {
    await page.route(lacking, (route) => route.fulfill({ status: 404, json: refusal }))
    await page.goto(`${dashboard.origin}/${path}`)
    const alert = page.getByRole('alert').filter({ hasText: 'Not today.' })
    await alert.waitFor()
    assert.equal(await whole.count(), 0)
    await page.unroute(lacking)
    // The page may have asked again by itself between these two: then there is nothing left to click.
    const retry = alert.getByRole('button', { name: 'Retry' })
    await retry.click({ timeout: 5_000 }).catch(async (error: unknown) => {
      if ((await retry.count()) > 0) throw error
    })
    await whole.waitFor()
  }
})

test('a refunded charge is in the history, with the reason', async () => {
  const page = await dashboard.open()
  await signInAsDeveloper(dashboard, page)
  await chat()
  const { id } = await accountOf(page)
  const [decision] = await dashboard.database.query<{ decision: string }>(
    `select (adjust_account(partition, id, gen_random_uuid(), 1, 'The model was down', 'test', null)).decision from accounts where id = $1`,
    [id],
  )
  assert.equal(decision!.decision, 'made')
  await page.goto(`${dashboard.origin}/funds`)
  const row = page.getByTestId('adjustment-row')
  await row.getByText('The model was down').waitFor()
  await row.getByText('+0.000001 USDC').waitFor()
  await page.getByText('Adjustments', { exact: true }).click()
  await page.getByTestId('deposit-row').first().waitFor({ state: 'detached' })
  assert.equal(await row.count(), 1)
})

test('a reset creates an empty account with fresh test money, and leaves the previous account unchanged', async () => {
  const page = await dashboard.open()
  await openAccountWithPasskey(dashboard, page)
  await page.getByTestId('checklist').getByRole('button', { name: 'Dismiss' }).click()
  await createKey(page, 'Before the reset')
  const before = await accountOf(page)
  await page.getByTestId('sandbox-bar').getByRole('button', { name: 'Reset data' }).click()
  await page.getByRole('dialog', { name: 'Reset data' }).getByRole('button', { name: 'Start over' }).click()
  await page.locator('[data-testid=balance-pill][data-available="25000000"]').waitFor()
  await page.getByTestId('checklist').waitFor()
  const begun = await accountOf(page)
  assert.notEqual(begun.id, before.id)
  assert.equal(begun.name, before.name)
  await page.goto(`${dashboard.origin}/keys`)
  await page.getByRole('heading', { name: 'Keys', level: 1 }).waitFor()
  assert.equal(await page.getByText('Before the reset').count(), 0)
  const keys = await dashboard.database.query('select from api_keys where account_id = $1 and revoked_at is null', [
    before.id,
  ])
  assert.equal(keys.length, 1)

  await page.context().clearCookies()
  await page.goto(`${dashboard.origin}/login`)
  await page.getByRole('button', { name: 'Sign in with a passkey' }).click()
  await atOverview(page)
  assert.equal((await accountOf(page)).id, begun.id, 'the same passkey opens the new one')
})

test('the balance of an account is proven in its browser, and a proof that does not fit is named', async () => {
  const page = await dashboard.open()
  await signInAsDeveloper(dashboard, page)
  const { id } = await accountOf(page)
  const leaves = [leafNode(accountId(1), 5_000_000n), leafNode(id, 23_980_000n), leafNode(accountId(2), 1_000_000n)]
  const honest = publish(leaves).proveTo(id, 23_980_000n, 1)
  const show = async (proof: object, published = honest.snapshot) => {
    const solvency = { ok: true, checked_at: new Date().toISOString(), block: '100', issuer, liabilities: published }
    await page.route('**/api/solvency', (route) => route.fulfill({ json: solvency }))
    await page.route('**/api/liabilities/proof*', (route) => route.fulfill({ json: proof }))
    await page.goto(`${dashboard.origin}/funds`)
    const line = page.getByTestId('liability')
    await line.waitFor()
    const text = await line.innerText()
    await page.unrouteAll()
    return text
  }
  const proven = await show(honest)
  assert.match(proven, /Balance proven/)
  assert.match(
    proven,
    /Your balance of \$23\.98 is leaf 2 of 3 in the snapshot of .*; the sum of \$29\.98 is covered by \$29\.98 on chain/,
  )
  assert.match(proven, /Download the proof/)
  assert.match(await show({ ...honest, leaf: null, path: [] }), /owes this account nothing/)

  const lower = publish(leaves.with(1, leafNode(id, 1n))).proveTo(id, 23_980_000n, 1)
  assert.match(await show(lower, lower.snapshot), /is not valid\. The path leads to the root/)
  const others = publish([leafNode(accountId(1), 5n)]).proveTo(accountId(1), 5n, 0)
  assert.match(await show(others, others.snapshot), /is not valid\. It is of account/)
  const another = publish(leaves, { onChain: 7n }).proveTo(id, 23_980_000n, 1)
  assert.match(await show(another), /is not valid\. Snapshot \d+ is not the one that is published/)
  const shortOf = publish(leaves, { onChain: 7_000_000n }).proveTo(id, 23_980_000n, 1)
  assert.match(await show(shortOf, shortOf.snapshot), /the sum of \$29\.98 is more than the \$7\.00 on chain/)
})

function accountOf(page: Page): Promise<{ id: string; name: string }> {
  return page.evaluate(async () => (await (await fetch('/api/session')).json()).account)
}

async function amountOf(page: Page, name: string): Promise<bigint> {
  return BigInt((await page.getByTestId(name).getAttribute('data-amount'))!)
}

async function chat(): Promise<void> {
  const answer = await fetch(`${dashboard.baseUrl}/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${dashboard.apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({ max_tokens: 50, web_search: false, messages: [{ role: 'user', content: 'Hi' }] }),
  })
  assert.equal(answer.status, 200, await answer.text())
}

/** Everything is typed, and only the last button is left; the sign-in is an hour ago. */
async function aboutToWithdraw(page: Page) {
  await openAccountWithPasskey(dashboard, page)
  await page.goto(`${dashboard.origin}/funds`)
  await page.getByRole('button', { name: 'Get 25 test USDC' }).click()
  await page.locator('[data-testid=balance-pill][data-available="25000000"]').waitFor()
  const form = page.getByTestId('withdraw')
  await form.getByLabel('Amount').fill('10')
  await form.getByLabel('To').fill(recipient)
  await form.getByRole('button', { name: 'Review withdrawal' }).click()
  const confirm = page.getByRole('dialog', { name: 'Confirm withdrawal' })
  await confirm.getByLabel('Type the last four characters of the address').fill(recipient.slice(-4))
  await dashboard.database.query(`update sessions set created_at = created_at - interval '1 hour'`)
  return confirm
}

async function withdrawalsEver(): Promise<number> {
  const rows = await dashboard.database.query("select from transfers where kind = 'withdrawal'")
  return rows.length
}
