import assert from 'node:assert/strict'
import { test } from 'node:test'
import OpenAI from 'openai'
import type { Page, Route } from 'playwright-core'
import { dashboardSuite } from './dashboard.ts'
import {
  atOverview,
  availableBalance,
  createKey,
  openAccountWithPasskey,
  pressCovered,
  signInAsDeveloper,
} from './person.ts'
import { installWallet } from './wallet.ts'

const dashboard = dashboardSuite()

test('from nothing to the first paid answer: money, key, request and explanation come without a reload', async () => {
  const page = await dashboard.open()
  await openAccountWithPasskey(dashboard, page)
  const checklist = page.getByTestId('checklist')

  await checklist.getByRole('button', { name: 'Get 25 test USDC' }).click()
  await page.locator('[data-testid=balance-pill][data-available="25000000"]').waitFor()

  await checklist.getByRole('button', { name: 'Create key' }).click()
  const secret = (await checklist.getByTestId('secret-once').locator('code').textContent())!
  assert.ok((await checklist.locator('pre').textContent())!.includes(secret), 'the code has the real key')

  const truncated = new OpenAI({ baseURL: dashboard.baseUrl, apiKey: secret.slice(0, 30), maxRetries: 0 })
  await assert.rejects(
    truncated.chat.completions.create({ model: 'gpt-5.6-terra', messages: [{ role: 'user', content: 'Hi' }] }),
  )
  await page.getByTestId('listener').getByText('invalid_api_key').waitFor()
  await page.getByTestId('listener').getByText('This API key has 30 characters; a key has 46.').waitFor()

  const client = new OpenAI({ baseURL: dashboard.baseUrl, apiKey: secret, maxRetries: 0 })
  await assert.rejects(
    client.chat.completions.create({ model: 'gpt-none', messages: [{ role: 'user', content: 'Hi' }] }),
  )
  await page.getByTestId('listener').getByText('model_not_found').waitFor()
  await page.getByTestId('listener').getByText('Unknown model').waitFor()

  await client.chat.completions.create({
    model: 'gpt-5.6-terra',
    messages: [{ role: 'user', content: 'What is a penny?' }],
  })
  const heard = page.getByTestId('listener').locator('p', { hasText: 'Succeeded' })
  await heard.getByRole('link', { name: 'Explain' }).click()

  const explain = page.getByTestId('explain')
  await explain.getByText('The lines add up to the charge').waitFor()
  await explain.getByRole('button', { name: 'Recompute in this browser' }).click()
  await page.locator('[data-testid=recomputed][data-agrees=true]').waitFor()
  const charged = BigInt((await explain.getByTestId('charged').textContent())!.replace(/[^\d]/g, ''))
  assert.ok(charged > 0n)
  await page.waitForFunction(
    (left) => document.querySelector('[data-testid=balance-pill]')?.getAttribute('data-available') === left,
    String(25_000_000n - charged),
  )
})

test('the first request appears on the empty log by itself; refused, it has neither a quote nor a charge to explain', async () => {
  const page = await dashboard.open()
  await page.addInitScript(() => localStorage.setItem('penny.requests.hidden', ''))
  await openAccountWithPasskey(dashboard, page)
  const secret = await createKey(page, 'Unfunded')
  await page.getByRole('link', { name: 'Requests', exact: true }).first().click()
  await page.getByText('No requests yet').hover()
  const client = new OpenAI({ baseURL: dashboard.baseUrl, apiKey: secret, maxRetries: 0 })
  await assert.rejects(
    client.chat.completions.create({ model: 'gpt-5.6-terra', messages: [{ role: 'user', content: 'Hi' }] }),
  )
  const row = page.getByTestId('request-row')
  await row.waitFor()
  const quote = (await page.getByRole('columnheader').allTextContents()).indexOf('Quote')
  assert.equal(await row.getByRole('cell').nth(quote).textContent(), '–')
  await row.getByRole('link').click()
  await page.getByTestId('explain').getByText('Nothing was held or charged').waitFor()
  assert.equal(await page.getByTestId('explain').getByRole('table').count(), 0)
})

test('the sandbox bar says what the latest action did, a failed one too', async () => {
  const page = await dashboard.open()
  await signInAsDeveloper(dashboard, page)
  const bar = page.getByTestId('sandbox-bar')
  await bar.getByRole('button', { name: 'Fail next call' }).click()
  await bar.getByText('The next model call will fail.').waitFor()
  await page.route('**/api/sandbox/mine', (route) => route.abort())
  await bar.getByRole('button', { name: 'Advance chain 10 blocks' }).click()
  await bar.getByText('The service did not respond').waitFor()
  await bar.getByRole('button', { name: 'Slow next call 3 s' }).click()
  await bar.getByText('The next model call will be delayed by 3 s.').waitFor()
  assert.equal(await bar.getByText(/will fail|did not respond/).count(), 0)
})

test('the printed link signs in once, by opening it', async () => {
  const page = await dashboard.open()
  // The page reads the session while it signs in. On a slow machine the older response, without a session, arrives last.
  const signedIn = page.waitForResponse('**/api/auth/link')
  const holdBack = async (route: Route) => {
    const response = await route.fetch()
    await signedIn
    await route.fulfill({ response })
  }
  await page.route('**/api/session', holdBack, { times: 1 })
  await page.goto(dashboard.signInLink)
  await atOverview(page)
  assert.ok(!page.url().includes('token'), 'the token does not stay in the address')
  const other = await dashboard.open()
  await other.goto(dashboard.signInLink)
  await other.getByRole('alert').waitFor()
  assert.equal(await other.getByRole('heading', { level: 1 }).textContent(), 'Sign in')
})

test('a wallet shows the text it is to sign, then signs in, also when the text became too old; one that declines sends nothing', async () => {
  const page = await dashboard.open()
  const account = await installWallet(page)
  await page.goto(`${dashboard.origin}/login`)
  await page.getByRole('button', { name: 'Test Wallet' }).click()
  const text = await page.getByTestId('siwe-text').textContent()
  assert.ok(text!.includes(account.address) && text!.startsWith(new URL(dashboard.origin).host))
  await page.getByRole('button', { name: 'Sign in with Test Wallet' }).click()
  await atOverview(page)

  const late = await dashboard.open()
  await late.clock.install()
  await installWallet(late)
  await late.goto(`${dashboard.origin}/login`)
  await late.getByRole('button', { name: 'Test Wallet' }).click()
  const tooOld = await late.getByTestId('siwe-text').textContent()
  const nonce = /Nonce: (\w+)/.exec(tooOld!)![1]
  await dashboard.database.query('update sign_in_challenges set expires_at = clock_timestamp() where nonce = $1', [
    nonce,
  ])
  // While the wallet asks.
  const pass = async (route: Route) => {
    await late.clock.setSystemTime(Date.now() + 301_000)
    await route.continue()
  }
  await late.route('**/api/auth/wallet', pass, { times: 1 })
  await late.getByRole('button', { name: 'Sign in with Test Wallet' }).click()
  await atOverview(late)

  const declining = await dashboard.open()
  await installWallet(declining, { refuses: true })
  await declining.goto(`${dashboard.origin}/login`)
  await declining.getByRole('button', { name: 'Test Wallet' }).click()
  await declining.getByRole('button', { name: 'Sign in with Test Wallet' }).click()
  await declining.getByText('You declined the signature. Nothing was sent.').waitFor()
})

test('a key’s secret is in exactly one answer of all that the pages ask for', async () => {
  const page = await dashboard.open()
  const bodies: Promise<string>[] = []
  page.on('response', (response) => {
    if (response.url().includes('/api/') && !response.url().endsWith('/api/stream'))
      bodies.push(response.text().catch(() => ''))
  })
  await signInAsDeveloper(dashboard, page)
  const secret = await createKey(page, 'Shown once')
  for (const path of ['', 'keys', 'requests', 'usage', 'funds', 'settings', 'playground']) {
    await page.goto(`${dashboard.origin}/${path}`)
    await page.getByRole('heading', { level: 1 }).waitFor()
    assert.ok(!(await page.content()).includes(secret), `/${path}`)
  }
  const answers = await Promise.all(bodies)
  assert.equal(answers.filter((body) => body.includes(secret)).length, 1)
})

test('what belongs to another account is not there', async () => {
  const answer = await fetch(`${dashboard.baseUrl}/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${dashboard.apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({ max_tokens: 20, messages: [{ role: 'user', content: 'Hi' }] }),
  })
  const id = answer.headers.get('x-router-request-id')!
  await answer.text()
  const page = await dashboard.open()
  await openAccountWithPasskey(dashboard, page)
  await page.goto(`${dashboard.origin}/requests/${id}`)
  await page.getByTestId('request-drawer').getByRole('alert').waitFor()
  assert.equal(await page.getByTestId('explain').count(), 0)
})

test('when a session ends, sign-in opens over the page, and typed text stays', async () => {
  const page = await dashboard.open()
  await page.clock.install()
  await signInAsDeveloper(dashboard, page, '/keys?create=1')
  await page.getByRole('dialog', { name: 'Create a key' }).getByLabel('Name').fill('Half typed')
  await page.clock.fastForward('06:00')
  await page.context().clearCookies()
  await pressCovered(page.getByRole('dialog', { name: 'Create a key' }).getByRole('button', { name: 'Create key' }))
  const again = page.getByRole('dialog', { name: 'Your session has ended' })
  await again.getByRole('button', { name: 'Continue as local developer' }).click()
  await again.waitFor({ state: 'detached' })
  assert.equal(await page.getByRole('dialog', { name: 'Create a key' }).getByLabel('Name').inputValue(), 'Half typed')
  await page.keyboard.press('Escape')

  // A sign-out in another window ends the session of this one; a sign-out in this one leaves the page.
  const other = await page.context().newPage()
  await other.goto(dashboard.origin)
  await signOut(other)
  await page.clock.fastForward('06:00')
  await page.getByRole('link', { name: 'Settings', exact: true }).first().click()
  await again.getByRole('button', { name: 'Continue as local developer' }).click()
  await again.waitFor({ state: 'detached' })
  await page.getByLabel('Account name').waitFor()
  await page.route('**/api/auth/logout', (route) => route.abort())
  await page.getByRole('button', { name: /^Account: / }).click()
  await page.getByRole('button', { name: 'Sign out' }).click()
  await page.getByRole('alert').getByText('The service did not respond').waitFor()
  await page.unroute('**/api/auth/logout')
  await page.keyboard.press('Escape')
  await signOut(page)
  assert.equal(await again.count(), 0)
})

test('the secret of a new or rotated key stays in sight until it was copied: on Escape, Back and another window size', async () => {
  const page = await dashboard.open()
  await signInAsDeveloper(dashboard, page, '/keys')
  await page.getByRole('button', { name: 'Create key' }).first().click()
  const create = page.getByRole('dialog', { name: 'Create a key' })
  await create.getByLabel('Name').fill('Kept')
  await create.getByRole('button', { name: 'Create key' }).click()
  const first = await page.getByTestId('secret').textContent()
  await page.goBack()
  await page.waitForURL(`${dashboard.origin}/keys`)
  assert.equal(await page.getByTestId('secret').textContent(), first)
  await page.getByRole('button', { name: 'Copy key' }).click()
  await page.getByRole('button', { name: 'Done' }).click()

  const { promise: escaped, resolve: answer } = Promise.withResolvers<void>()
  await page.route('**/rotate', async (route) => {
    await escaped
    await route.continue()
  })
  // The answer to the first rotation is lost.
  await page.route('**/rotate', (route) => route.fetch().then(() => route.abort()), { times: 1 })
  await page.getByRole('button', { name: 'Actions for Kept' }).click()
  await page.getByRole('button', { name: 'Rotate' }).click()
  const rotate = page.getByRole('dialog', { name: 'Rotate Kept' })
  await rotate.getByRole('button', { name: 'Rotate key' }).click()
  await rotate.getByText('the old secret may stop working. Rotate the key again to get a new secret.').waitFor()
  await rotate.getByRole('button', { name: 'Rotate key' }).click()
  await rotate.locator('button[aria-busy=true]').waitFor()
  for (const _ of [1, 2]) await page.keyboard.press('Escape')
  assert.ok(await rotate.getByRole('button', { name: 'Cancel' }).isDisabled())
  answer()
  const second = await page.getByTestId('secret').textContent()
  assert.notEqual(second, first)
  await page.setViewportSize({ width: 600, height: 900 })
  await page.locator('ul > [data-testid=key-row]').first().waitFor()
  assert.equal(await page.getByTestId('secret').textContent(), second)
})

async function signOut(page: Page): Promise<void> {
  await page.getByRole('button', { name: /^Account: / }).click()
  await page.getByRole('button', { name: 'Sign out' }).click()
  await page.getByRole('heading', { name: 'Sign in', level: 1 }).waitFor()
}

test('the palette keeps the selection in view, and offers the theme that is not active', async () => {
  const page = await dashboard.open({ colorScheme: 'dark', viewport: { width: 1280, height: 900 } })
  await signInAsDeveloper(dashboard, page)
  assert.equal(await page.locator('html').getAttribute('data-theme'), 'dark')
  await page.keyboard.press('Control+k')
  const palette = page.getByTestId('palette')
  await palette.getByRole('option', { name: /^Key:/ }).first().waitFor({ state: 'attached' })
  await page.keyboard.press('ArrowUp')
  const option = (await palette.locator('[role=option]:last-child[aria-selected=true]').boundingBox())!
  const frame = (await palette.getByRole('listbox').boundingBox())!
  const below = option.y + option.height - (frame.y + frame.height)
  assert.ok(below < 1, `the last option is in sight but for a rounding: ${below} px`)
  await page.keyboard.type('theme')
  await page.keyboard.press('Enter')
  await page.locator('html[data-theme=light]').waitFor()
})

test('the palette finds documentation, models and settings', async () => {
  const page = await dashboard.open()
  await signInAsDeveloper(dashboard, page)
  const palette = page.getByTestId('palette')
  await page.keyboard.press('Control+k')
  await palette.getByRole('combobox').fill('refund')
  await palette
    .getByRole('option', { name: /^Docs: / })
    .first()
    .waitFor()
  await palette.getByRole('combobox').fill('codex')
  await palette.getByRole('option', { name: 'Model: gpt-5.3-codex-spark' }).waitFor()
  await palette.getByRole('combobox').fill('sessions')
  await palette.getByRole('option', { name: 'Settings: Sessions' }).click()
  await page.waitForURL(/\/settings#sessions$/)
  await page.getByRole('heading', { name: 'Sessions' }).waitFor()
})

test('everything can be reached by keyboard', async () => {
  const page = await dashboard.open()
  await signInAsDeveloper(dashboard, page)
  await page.keyboard.press('Tab')
  assert.equal(await page.evaluate(() => document.activeElement?.textContent), 'Skip to content')
  await page.keyboard.press('Control+k')
  await page.getByTestId('palette').waitFor()
  await page.keyboard.type('create')
  await page.keyboard.press('Enter')
  const dialog = page.getByRole('dialog', { name: 'Create a key' })
  await dialog.waitFor()
  await page.keyboard.press('Escape')
  await dialog.waitFor({ state: 'detached' })
  await page.keyboard.press('g')
  await page.keyboard.press('r')
  await page.getByRole('heading', { name: 'Requests', level: 1 }).waitFor()
  await page.getByTestId('request-row').first().waitFor()
  await page.keyboard.press('j')
  await page.keyboard.press('Enter')
  await page.getByTestId('request-drawer').waitFor()
  await page.keyboard.press('Escape')
  await page.getByTestId('request-drawer').waitFor({ state: 'detached' })
  await page.keyboard.press('?')
  await page.getByRole('dialog', { name: 'Keyboard shortcuts' }).waitFor()
  assert.ok((await availableBalance(page)) > 0n)
})
