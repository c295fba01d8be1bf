import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { test } from 'node:test'
import type { Page, Route } from 'playwright-core'
import { atEnd } from '../support/at-end.ts'
import { dashboardSuite } from './dashboard.ts'
import { openAccountWithPasskey, plugInPasskeyDevice, signInAsDeveloper } from './person.ts'
import { installWallet } from './wallet.ts'

const dashboard = dashboardSuite()

test('a balance alert shows at the bell, and Funds shows its threshold', async () => {
  const page = await dashboard.open()
  await signInAsDeveloper(dashboard, page)
  await page.getByRole('button', { name: 'Alerts: none' }).waitFor()
  await page.getByRole('link', { name: 'Funds', exact: true }).first().click()
  await page.getByText('We’ll warn you when less than 3 days of balance remain.').waitFor()
  await page.getByRole('link', { name: 'Change low-balance warnings' }).click()

  const settings = page.getByTestId('alerts')
  const below = settings.getByRole('group', { name: 'The balance falls below' })
  await below.getByRole('checkbox').check()
  await below.getByLabel('Threshold').fill('30.1234567')
  await settings.getByRole('button', { name: 'Save alerts' }).click()
  await below.getByRole('alert').filter({ hasText: 'at most six decimals' }).waitFor()
  await below.getByLabel('Threshold').fill('30')
  // Another window has changed another rule meanwhile. Saving this one does not revert it.
  const elsewhere = await page.evaluate(async () => {
    const answer = await fetch('/api/alerts/rules/spend_day', {
      method: 'PUT',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ enabled: true, threshold: '77' }),
    })
    return answer.ok
  })
  assert.ok(elsewhere)
  await settings.getByRole('group', { name: 'The balance lasts' }).getByRole('checkbox').uncheck()
  await settings.getByRole('button', { name: 'Save alerts' }).click()

  const perDay = settings.getByRole('group', { name: 'Spend in a day (UTC) reaches' })
  await page.waitForFunction(
    (field) => (field as HTMLInputElement).value === '77',
    await perDay.getByLabel('Threshold').elementHandle(),
  )
  await page.getByRole('button', { name: 'Alerts: 1' }).click()
  await page.getByText('25 USDC left. Your warning is set to 30 USDC.').waitFor()
  await page.getByRole('link', { name: 'Funds', exact: true }).first().click()
  await page.getByText('We’ll warn you when the balance falls below 30 USDC.').waitFor()
})

test('what could not be read or changed is said, and not shown as none or done', async () => {
  const page = await dashboard.open()
  await signInAsDeveloper(dashboard, page, '/settings')
  await page.route('**/api/sessions', (route) =>
    route.request().method() === 'DELETE' ? route.abort() : route.fallback(),
  )
  await page.getByRole('button', { name: 'End other sessions' }).click()
  await page.getByRole('alert').filter({ hasText: 'The service did not respond' }).waitFor()

  const refusal = { error: { message: 'Not today.', code: 'not_found', request_id: '' } }
  for (const path of ['invitations', 'overview*', 'balance'])
    await page.route(`**/api/${path}`, (route) => route.fulfill({ status: 404, json: refusal }))
  await page.reload()
  await page.getByTestId('members').getByRole('alert').filter({ hasText: 'Not today.' }).waitFor()
  await page.getByRole('link', { name: 'Balance not loaded' }).waitFor()
  await page.getByRole('button', { name: 'Alerts', exact: true }).click()
  await page.getByText('The alerts could not be loaded.').waitFor()
})

test('adding a passkey asks for a recent sign-in first, then the device creates exactly one', async () => {
  const page = await dashboard.open()
  const device = await plugInPasskeyDevice(page)
  await signInAsDeveloper(dashboard, page, '/settings')
  await dashboard.database.query(`update sessions set created_at = clock_timestamp() - interval '16 minutes'`)
  await page.getByRole('button', { name: 'Add passkey' }).click()
  const again = page.getByTestId('sign-in-again')
  await again.getByText('Confirm it is you').waitFor()
  assert.equal(await device.countPasskeys(), 0, 'a passkey that the service refuses would stay on the device')
  await again.getByRole('button', { name: 'Continue as local developer' }).click()
  await page.getByRole('button', { name: 'Remove Passkey' }).waitFor()
  assert.equal(await page.getByRole('button', { name: 'Remove Passkey' }).count(), 1)
  assert.equal(await device.countPasskeys(), 1)
})

test('removing a passkey or a wallet asks first', async () => {
  const page = await dashboard.open()
  await openAccountWithPasskey(dashboard, page)
  const account = await installWallet(page)
  await page.goto(`${dashboard.origin}/settings`)
  await page.getByRole('button', { name: 'Add wallet' }).click()
  await page.getByRole('button', { name: 'Test Wallet' }).click()
  let removals = 0
  page.on('request', (request) => {
    if (request.method() === 'DELETE') removals += 1
  })
  const removeWallet = page.getByRole('button', { name: new RegExp(`^Remove ${account.address}$`, 'i') })
  const walletDialog = page.getByRole('dialog', { name: 'Remove wallet' })
  await removeWallet.click()
  await walletDialog.getByText('only after a waiting period').waitFor()
  await walletDialog.getByRole('button', { name: 'Cancel' }).click()
  await walletDialog.waitFor({ state: 'detached' })
  assert.equal(removals, 0)
  await removeWallet.click()
  await walletDialog.getByRole('button', { name: 'Remove wallet' }).click()
  await removeWallet.waitFor({ state: 'detached' })

  await page.getByRole('button', { name: 'Remove Passkey' }).click()
  const passkeyDialog = page.getByRole('dialog', { name: 'Remove passkey' })
  await passkeyDialog.getByText('only after a waiting period').waitFor()
  assert.equal(removals, 1)
  await passkeyDialog.getByRole('button', { name: 'Remove passkey' }).click()
  await passkeyDialog.getByRole('alert').filter({ hasText: 'This is your last way to sign in.' }).waitFor()
})

test('typing the account’s name closes it and returns to the sign-in, and the demo account stays', async () => {
  const page = await dashboard.open()
  await openAccountWithPasskey(dashboard, page)
  await page.goto(`${dashboard.origin}/settings`)
  await page.getByTestId('close-account').getByRole('button', { name: 'Close account' }).click()
  const dialog = page.getByRole('dialog', { name: 'Close Passkey' })
  const close = dialog.getByRole('button', { name: 'Close permanently' })
  await dialog.getByLabel('Type the account’s name').fill('Pass')
  assert.ok(await close.isDisabled())
  await page.keyboard.press('Enter')
  await page.evaluate(() => sessionStorage.setItem('penny.playground.some-account', '{}'))
  await dialog.getByLabel('Type the account’s name').fill('Passkey')
  await page.keyboard.press('Enter')
  await page.getByText('The account is closed. Its keys are revoked, and you can no longer sign in to it.').waitFor()
  assert.equal(await page.evaluate(() => sessionStorage.getItem('penny.playground.some-account')), null)
  await page.getByRole('button', { name: 'Sign in with a passkey' }).click()
  await page.getByText('No account has this passkey.').waitFor()

  await signInAsDeveloper(dashboard, page, '/settings')
  await page.getByTestId('close-account').getByText('This is the sandbox’s demo account').waitFor()
})

test('remaining money is shown before the account is closed, and the service refuses to close it', async () => {
  const page = await dashboard.open()
  await openAccountWithPasskey(dashboard, page)
  await page.goto(`${dashboard.origin}/funds`)
  await page.getByRole('button', { name: 'Get 25 test USDC', exact: true }).click()
  await page.locator('[data-testid=balance-pill][data-available="25000000"]').waitFor()
  await page.goto(`${dashboard.origin}/settings`)
  const panel = page.getByTestId('close-account')
  await panel.getByText('25.000000 USDC is available.').waitFor()
  await panel.getByRole('button', { name: 'Close account' }).click()
  const dialog = page.getByRole('dialog', { name: 'Close Passkey' })
  await dialog.getByLabel('Type the account’s name').fill('Passkey')
  await dialog.getByRole('button', { name: 'Close permanently' }).click()
  await dialog.getByRole('alert').filter({ hasText: '25 USDC is available' }).waitFor()
})

test('a new webhook shows its secret once, and a test event is sent, delivered and resent', async (t) => {
  const received: string[] = []
  const receiver = createServer((incoming, outgoing) => {
    received.push(String(incoming.headers['webhook-id']))
    incoming.resume()
    outgoing.writeHead(204).end()
  })
  receiver.listen(0, '127.0.0.1')
  await once(receiver, 'listening')
  atEnd(t, async () => void receiver.close())
  const page = await dashboard.open()
  await signInAsDeveloper(dashboard, page, '/settings')
  const panel = page.getByTestId('webhooks')
  await panel.getByRole('button', { name: 'Add endpoint' }).click()
  const form = page.getByRole('dialog', { name: 'Add a webhook endpoint' })
  await form.getByRole('textbox', { name: 'Address' }).fill('https://10.0.0.1/')
  await form.getByRole('button', { name: 'Add endpoint' }).click()
  await form.getByText('it must be that of a public host').waitFor()
  await page.route('**/api/webhooks', losePost)
  await form.getByRole('button', { name: 'Add endpoint' }).click()
  await form.getByRole('alert').getByText('The endpoint may have been added').waitFor()
  await page.unroute('**/api/webhooks', losePost)
  await form
    .getByRole('textbox', { name: 'Address' })
    .fill(`http://127.0.0.1:${(receiver.address() as AddressInfo).port}/hook`)
  await form.getByRole('button', { name: 'Add endpoint' }).click()
  const secret = page.getByRole('dialog', { name: 'Signing secret' })
  assert.match(await secret.locator('output').innerText(), /^whsec_/)
  await page.keyboard.press('Escape')
  await secret.getByRole('alert').getByText('You would have to rotate the secret to get a new one.').waitFor()
  await shot(page, 'shown-once')
  await secret.getByRole('button', { name: 'Close without copying' }).click()
  await secret.waitFor({ state: 'detached' })

  await panel.getByRole('button', { name: 'Send test' }).click()
  const delivery = page.getByRole('dialog', { name: 'Deliveries' }).getByTestId('webhook-delivery')
  await delivery.filter({ hasText: 'Delivered' }).filter({ hasText: 'HTTP 204' }).waitFor()
  await delivery.getByRole('button', { name: 'Send again' }).click()
  await delivery.getByText('HTTP 204').nth(1).waitFor()
  assert.deepEqual(received, [received[0], received[0]])
  await page.keyboard.press('Escape')

  const url = await panel.locator('li .num').first().innerText()
  await panel.getByRole('button', { name: 'Rotate secret' }).click()
  const rotation = page.getByRole('dialog', { name: 'Rotate secret' })
  await page.route('**/rotate', (route) => route.fetch().then(() => route.abort()), { times: 1 })
  await rotation.getByRole('button', { name: 'Rotate secret' }).click()
  await rotation.getByText('The secret may have been rotated').waitFor()
  await rotation.getByRole('button', { name: 'Rotate secret' }).click()
  await secret.getByRole('button', { name: 'Copy' }).click()
  await secret.getByRole('button', { name: 'Done' }).click()

  const removal = page.getByRole('dialog', { name: 'Remove webhook' })
  await panel.getByRole('button', { name: `Remove ${url}` }).click()
  await removal.getByText(url).waitFor()
  await removal.getByRole('button', { name: 'Cancel' }).click()
  await removal.waitFor({ state: 'detached' })
  await panel.getByRole('button', { name: `Remove ${url}` }).click()
  await removal.getByRole('button', { name: 'Remove webhook' }).click()
  await panel.getByRole('button', { name: `Remove ${url}` }).waitFor({ state: 'detached' })
})

test('a management key is rotated and revoked only after a question that says what will happen', async () => {
  const page = await dashboard.open()
  await signInAsDeveloper(dashboard, page, '/settings')
  const panel = page.getByTestId('management-keys')
  const shown = page.getByRole('dialog', { name: 'Management key', exact: true })
  await panel.getByRole('button', { name: 'Create' }).click()
  const form = page.getByRole('dialog', { name: 'Create a management key' })
  await form.getByLabel('Name').fill('Terraform')
  await form.getByLabel('Read API keys').check()
  await form.getByRole('button', { name: 'Create management key' }).click()
  const first = await shown.locator('output').innerText()
  await shown.getByRole('button', { name: 'Copy' }).click()
  await shown.getByRole('button', { name: 'Done' }).click()

  const rotation = page.getByRole('dialog', { name: 'Rotate Terraform' })
  await panel.getByRole('button', { name: 'Rotate Terraform' }).click()
  await rotation.getByText('The old secret stops working immediately').waitFor()
  await shot(page, 'confirm')
  await rotation.getByRole('button', { name: 'Cancel' }).click()
  assert.equal(await statusWith(first), 200)
  await panel.getByRole('button', { name: 'Rotate Terraform' }).click()
  await rotation.getByRole('button', { name: 'Rotate key' }).click()
  const second = await shown.locator('output').innerText()
  assert.notEqual(second, first)
  await shown.getByRole('button', { name: 'Copy' }).click()
  await shown.getByRole('button', { name: 'Done' }).click()

  const revocation = page.getByRole('dialog', { name: 'Revoke Terraform' })
  await panel.getByRole('button', { name: 'Revoke Terraform' }).click()
  await revocation.getByRole('button', { name: 'Cancel' }).click()
  assert.equal(await statusWith(second), 200)
  await panel.getByRole('button', { name: 'Revoke Terraform' }).click()
  await revocation.getByRole('button', { name: 'Revoke permanently' }).click()
  await panel.getByRole('button', { name: 'Revoke Terraform' }).waitFor({ state: 'detached' })
  assert.equal(await statusWith(second), 401)
})

test('a management key whose creation got no answer is listed, and the dialog says that it may have been created', async () => {
  const page = await dashboard.open()
  await signInAsDeveloper(dashboard, page, '/settings')
  await page.route('**/api/management-keys', async (route) => {
    if (route.request().method() !== 'POST') return route.fallback()
    await route.fetch()
    await route.abort()
  })
  const panel = page.getByTestId('management-keys')
  await panel.getByRole('button', { name: 'Create' }).click()
  const form = page.getByRole('dialog', { name: 'Create a management key' })
  await form.getByLabel('Name').fill('Answer lost')
  await form.getByRole('button', { name: 'Create management key' }).click()
  await form.getByRole('alert').getByText('The key may have been created').waitFor()
  await page.keyboard.press('Escape')
  await panel.getByRole('button', { name: 'Revoke Answer lost' }).waitFor()
})

/** The request does not arrive; the page cannot know that. */
function losePost(route: Route): Promise<void> {
  return route.request().method() === 'POST' ? route.abort() : route.fallback()
}

async function statusWith(secret: string): Promise<number> {
  const answer = await fetch(`${dashboard.origin}/api/keys`, { headers: { authorization: `Bearer ${secret}` } })
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
