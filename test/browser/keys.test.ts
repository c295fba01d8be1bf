import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Page } from 'playwright-core'
import { assertAccessibleInThemes, windows } from './accessible.ts'
import { dashboardSuite } from './dashboard.ts'
import { pressCovered, signInAsDeveloper } from './person.ts'

const dashboard = dashboardSuite({ SANDBOX_TOKENS_PER_SECOND: '0' })

test('a key is restricted in the dialog that creates it, and the restrictions are enforced, listed and edited', async () => {
  const page = await dashboard.open()
  await signInAsDeveloper(dashboard, page, '/keys?create=1')
  const dialog = page.getByRole('dialog', { name: 'Create a key' })
  await dialog.getByLabel('Name').fill('Careful')
  await dialog.getByText('Restrictions').click()
  await dialog.getByText('Only selected').click()
  await dialog.getByLabel('Maximum cost per request').fill('nothing')
  await dialog.getByRole('button', { name: 'Create key' }).click()
  await dialog.getByText('Select at least one model.').waitFor()
  await dialog.getByText('Enter an amount above 0 USDC').waitFor()
  await dialog.getByLabel('gpt-5.6-luna').check()
  await dialog.getByLabel('Maximum cost per request').fill('0.05')
  await dialog.getByLabel('Allow web search and web fetch').uncheck()
  await dialog.getByLabel('Allowed IP addresses').fill('nowhere')
  await dialog.getByRole('button', { name: 'Create key' }).click()
  await dialog.getByText(/allowed_ips/).waitFor()
  await dialog.getByLabel('Allowed IP addresses').fill('127.0.0.0/8\n::1')
  await dialog.getByRole('button', { name: 'Create key' }).click()
  const secret = (await page.getByTestId('secret').textContent())!.trim()
  await page.getByRole('button', { name: 'Copy key' }).click()
  await page.getByRole('button', { name: 'Done' }).click()
  const row = page.getByTestId('key-row').filter({ hasText: 'Careful' })
  await row.getByText('gpt-5.6-luna, max $0.05 per request, no web tools, 2 IP ranges').waitFor()
  assert.equal(await ask(secret, { model: 'gpt-5.6-luna' }), 200)
  assert.equal(await ask(secret, { model: 'gpt-5.6-sol' }), 403)

  await row.getByRole('button', { name: 'Actions for Careful' }).click()
  await page.getByRole('button', { name: 'Edit' }).click()
  const edit = page.getByRole('dialog', { name: 'Edit Careful' })
  assert.equal(await edit.getByLabel('Allowed IP addresses').inputValue(), '127.0.0.0/8\n::1')
  // Another window lowers the limit meanwhile. Saving an edit of other fields does not take that back.
  const lowered = await page.evaluate(async () => {
    const { data } = (await (await fetch('/api/keys')).json()) as { data: readonly { id: string; name: string }[] }
    const { id } = data.find(({ name }) => name === 'Careful')!
    const answer = await fetch(`/api/keys/${id}`, {
      method: 'PATCH',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ limit: '0.5' }),
    })
    return answer.ok
  })
  assert.ok(lowered)
  await edit.getByText('All models').click()
  await edit.getByLabel('Maximum cost per request').fill('')
  await edit.getByRole('button', { name: 'Save' }).click()
  // The text of before ends with the same words.
  await row.getByText('gpt-5.6-luna').waitFor({ state: 'detached' })
  await row.getByText('no web tools, 2 IP ranges').waitFor()
  assert.equal(await ask(secret, { model: 'gpt-5.6-sol' }), 200)
  const key = await fetch(`${dashboard.origin}/api/key`, { headers: { authorization: `Bearer ${secret}` } })
  assert.equal(((await key.json()) as { limit: string | null }).limit, '0.5')

  await row.getByRole('link', { name: 'Careful' }).click()
  const refusals = page.getByTestId('refusals')
  await refusals.getByText('model_not_allowed').waitFor()
  await refusals.getByText('The key is restricted to certain models').waitFor()
  await page.getByText('Not allowed', { exact: true }).waitFor()
})

test('the restrictions of a key are accessible in both themes, on any screen', async () => {
  for (const [name, viewport] of Object.entries(windows)) {
    const page = await dashboard.open({ viewport })
    await signInAsDeveloper(dashboard, page, '/keys?create=1')
    const dialog = page.getByRole('dialog', { name: 'Create a key' })
    await dialog.getByText('Restrictions').click()
    await dialog.getByText('Only selected').click()
    await dialog.getByLabel('gpt-5.6-luna').check()
    if (process.env.SHOTS !== undefined) {
      await page.screenshot({ path: `${process.env.SHOTS}/restrictions-${name}.png` })
    }
    await assertAccessibleInThemes(page, 'restrictions', name)
  }
})

test('a dialog and a panel that are closed give the focus back to where they were opened', async () => {
  const page = await dashboard.open()
  await signInAsDeveloper(dashboard, page, '/keys')
  const create = page.getByRole('button', { name: 'Create key' })
  const menu = page.getByRole('button', { name: 'Actions for Sandbox demo key' })
  for (const [trigger, open] of [
    [create, () => create.press('Enter')],
    [menu, () => menu.press('Enter').then(() => page.getByRole('button', { name: 'Edit' }).press('Enter'))],
    [menu, () => page.keyboard.press('Control+k')],
  ] as const) {
    await open()
    await page.getByRole('dialog').last().waitFor()
    await page.keyboard.press('Escape')
    await page.locator('dialog').waitFor({ state: 'detached' })
    assert.ok(await trigger.evaluate((element) => element === document.activeElement))
  }

  assert.equal(await ask(dashboard.apiKey, {}), 200)
  await page.goto(`${dashboard.origin}/requests`)
  const row = page.locator('[data-row]').first()
  await row.press('Enter')
  await page.getByTestId('request-drawer').waitFor()
  await page.keyboard.press('Escape')
  await page.getByTestId('request-drawer').waitFor({ state: 'detached' })
  assert.ok(await row.evaluate((element) => element === document.activeElement))
})

test('a part of the page that cannot be loaded says so, and what was typed stays', async () => {
  const page = await dashboard.open()
  await signInAsDeveloper(dashboard, page, '/keys?create=1')
  const name = page.getByRole('dialog', { name: 'Create a key' }).getByLabel('Name')
  await name.fill('Typed')
  await page.waitForLoadState('networkidle')
  // As after an update of the service, which removes the files of the build before.
  await page.route('**/assets/*.js', (route) => route.fulfill({ status: 404 }))
  await page.keyboard.press('Control+k')
  const notLoaded = page.getByRole('dialog', { name: 'This part could not be loaded' })
  await notLoaded.getByText('Close').click()
  assert.equal(await name.inputValue(), 'Typed')

  await page.context().clearCookies()
  await pressCovered(page.getByRole('dialog').getByRole('button', { name: 'Create key' }))
  const again = page.getByRole('dialog', { name: 'Your session has ended' })
  await again.getByRole('button', { name: 'Continue as local developer' }).click()
  await again.waitFor({ state: 'detached' })
  assert.equal(await name.inputValue(), 'Typed')
})

test('a sign-in prompt that was closed comes back for a change or its button, and the page says that it is signed out', async () => {
  const page = await dashboard.open()
  await signInAsDeveloper(dashboard, page, '/keys?create=1')
  const create = page.getByRole('dialog', { name: 'Create a key' })
  await create.getByLabel('Name').fill('Typed')
  await page.context().clearCookies()
  const again = page.getByRole('dialog', { name: 'Your session has ended' })
  for (const _ of ['first', 'again']) {
    const refused = page.waitForResponse((response) => response.request().method() === 'POST')
    await pressCovered(create.getByRole('button', { name: 'Create key' }))
    await refused
    await again.waitFor()
    await page.keyboard.press('Escape')
    await again.waitFor({ state: 'detached' })
  }
  await create.getByRole('button', { name: 'Cancel' }).click()

  // As with a poll: what is read is refused.
  await page.getByRole('link', { name: 'Requests', exact: true }).first().click()
  await page.getByRole('main').getByRole('alert').first().waitFor()
  const bar = page.getByTestId('session-ended')
  await bar.getByText('You are signed out. This page is no longer updated.').waitFor()
  assert.equal(await again.count(), 0)
  await shot(page, 'session-ended')
  await bar.getByRole('button', { name: 'Sign in' }).click()
  await again.getByRole('button', { name: 'Continue as local developer' }).click()
  await again.waitFor({ state: 'detached' })
  await bar.waitFor({ state: 'detached' })
})

test('a key whose creation got no answer is listed, and the dialog says that it may have been created', async () => {
  const page = await dashboard.open()
  await signInAsDeveloper(dashboard, page, '/keys?create=1')
  await page.route('**/api/keys', async (route) => {
    if (route.request().method() !== 'POST') return route.fallback()
    await route.fetch()
    await route.abort()
  })
  const dialog = page.getByRole('dialog', { name: 'Create a key' })
  await dialog.getByLabel('Name').fill('Answer lost')
  await dialog.getByRole('button', { name: 'Create key' }).click()
  await dialog.getByRole('alert').getByText('The key may have been created').waitFor()
  await shot(page, 'creation-lost')
  await dialog.getByRole('button', { name: 'Cancel' }).click()
  await page.getByTestId('key-row').filter({ hasText: 'Answer lost' }).waitFor()
})

test('a key that could not be disabled is not taken for disabled', async () => {
  const page = await dashboard.open()
  await signInAsDeveloper(dashboard, page, '/keys')
  const change = (url: URL) => /^\/api\/keys\/.+/.test(url.pathname)
  await page.route(change, (route) => (route.request().method() === 'PATCH' ? route.abort() : route.fallback()))
  const disable = async () => {
    await page.getByRole('button', { name: 'Actions for Sandbox demo key' }).click()
    await page.getByRole('button', { name: 'Disable' }).click()
  }
  await disable()
  const failed = page.getByRole('dialog', { name: 'The key may not have been changed' })
  await failed.getByText('The service did not respond').waitFor()
  await failed.getByRole('button', { name: 'Close' }).click()
  await page.unroute(change)

  // It was disabled, but the answer is lost: the list says so.
  await page.route(change, async (route) => {
    if (route.request().method() !== 'PATCH') return route.fallback()
    await route.fetch()
    await route.abort()
  })
  await disable()
  await page.getByTestId('key-row').filter({ hasText: 'Sandbox demo key' }).getByText('Disabled').waitFor()
  await failed.getByRole('button', { name: 'Close' }).click()
  await page.unroute(change)
  await page.getByRole('button', { name: 'Actions for Sandbox demo key' }).click()
  await page.getByRole('button', { name: 'Enable' }).click()
  await page.getByTestId('key-row').filter({ hasText: 'Sandbox demo key' }).getByText('Active').waitFor()
})

test('an error among the restrictions is shown, also when they were closed', async () => {
  const page = await dashboard.open()
  await signInAsDeveloper(dashboard, page, '/keys?create=1')
  const dialog = page.getByRole('dialog', { name: 'Create a key' })
  const error = dialog.getByRole('alert').filter({ hasText: 'Select at least one model.' })
  await dialog.getByLabel('Name').fill('No models')
  await dialog.getByText('Restrictions').click()
  await dialog.getByText('Only selected').click()
  await dialog.getByText('Restrictions').click()
  await dialog.getByText('Only selected').waitFor({ state: 'hidden' })
  await dialog.getByRole('button', { name: 'Create key' }).click()
  await error.waitFor()
  await dialog.getByText('All models').click()
  await error.waitFor({ state: 'detached' })
  await dialog.getByText('Restrictions').click()
  await dialog.getByText('Only selected').waitFor({ state: 'hidden' })
})

test('a restriction that is emptied while it is edited stays in sight', async () => {
  const page = await dashboard.open()
  await signInAsDeveloper(dashboard, page, '/keys?create=1')
  const dialog = page.getByRole('dialog', { name: 'Create a key' })
  await dialog.getByText('Restrictions').click()
  const cost = dialog.getByLabel('Maximum cost per request')
  await cost.pressSequentially('5')
  await cost.press('Backspace')
  await cost.pressSequentially('0.5')
  assert.equal(await cost.inputValue(), '0.5')
  await dialog.getByText('Restrictions').click()
  await cost.waitFor({ state: 'hidden' })
})

test('long names widen no page, and a key with several spaces in its name can be revoked', async () => {
  const page = await dashboard.open()
  await signInAsDeveloper(dashboard, page, '/keys')
  const id = await page.evaluate(async () => {
    const send = (method: string, path: string, name: string) =>
      fetch(path, { method, headers: { 'content-type': 'application/json' }, body: JSON.stringify({ name }) })
    await send('POST', '/api/keys', 'Two  spaces')
    await send('PATCH', '/api/account', 'W'.repeat(200))
    return (await (await send('POST', '/api/keys', 'W'.repeat(200))).json()).id as string
  })
  const answer = await page.evaluate(async (keyId) => {
    const body = JSON.stringify({ key_id: keyId, max_tokens: 50, messages: [{ role: 'user', content: 'Hi' }] })
    return (await fetch('/api/playground', { method: 'POST', headers: { 'content-type': 'application/json' }, body }))
      .status
  }, id)
  assert.equal(answer, 200)
  for (const width of [390, 920, 1280]) {
    await page.setViewportSize({ width, height: 900 })
    for (const path of ['keys', `keys/${id}`, 'usage?group=key', 'funds/statement', `playground?key=${id}`]) {
      await page.goto(`${dashboard.origin}/${path}`)
      await page.getByText('WWWW').first().waitFor({ state: 'attached' })
      const wider = await page.evaluate(() => {
        const { scrollWidth, clientWidth } = document.documentElement
        return scrollWidth - clientWidth
      })
      assert.equal(wider, 0, `${path} is wider than its window of ${width} px`)
    }
  }

  await page.goto(`${dashboard.origin}/keys`)
  await page.getByRole('button', { name: 'Actions for Two spaces' }).click()
  await page.getByRole('button', { name: 'Revoke' }).click()
  const revoke = page.getByRole('dialog', { name: 'Revoke Two spaces' })
  await revoke.getByLabel('Type the key’s name').fill('Two spaces')
  await revoke.getByRole('button', { name: 'Revoke permanently' }).click()
  await page.getByTestId('key-row').filter({ hasText: 'Two spaces' }).getByText('Revoked').waitFor()
})

test('a copy that the browser blocks is seen to have failed', async () => {
  const page = await dashboard.open()
  await page.addInitScript(() => Object.defineProperty(navigator, 'clipboard', { value: undefined }))
  await signInAsDeveloper(dashboard, page, '/funds')
  await page.getByRole('button', { name: 'Copy address' }).click()
  await page.getByRole('button', { name: 'Copying was blocked' }).waitFor()
  await page.getByRole('button', { name: /^Available .* Copy$/ }).click()
  await page.getByText('Copying was blocked', { exact: true }).nth(1).waitFor()
})

async function ask(secret: string, body: object): Promise<number> {
  const answer = await fetch(`${dashboard.baseUrl}/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
    body: JSON.stringify({ max_tokens: 50, messages: [{ role: 'user', content: 'Hi' }], ...body }),
  })
  await answer.text()
  return answer.status
}

/** In both themes, wide and as narrow as a phone. */
async function shot(page: Page, name: string): Promise<void> {
  if (process.env.SHOTS === undefined) return
  for (const colorScheme of ['dark', 'light'] as const)
    for (const width of [390, 1280]) {
      await page.emulateMedia({ colorScheme })
      await page.setViewportSize({ width, height: 900 })
      await page.screenshot({ path: `${process.env.SHOTS}/${name}-${colorScheme}-${width}.png` })
    }
}
