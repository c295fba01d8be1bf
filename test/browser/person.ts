import assert from 'node:assert/strict'
import type { BrowserContext, Locator, Page } from 'playwright-core'
import type { Dashboard } from './dashboard.ts'

// What a person does before the dashboard, in their words.

/** Opens an account with a passkey: a fresh account without money, keys or history. */
export async function openAccountWithPasskey(dashboard: Dashboard, page: Page): Promise<void> {
  await plugInPasskeyDevice(page)
  await page.goto(`${dashboard.origin}/login`)
  await page.getByRole('button', { name: 'Create an account with a new passkey' }).click()
  await atOverview(page)
}

/** From now on the page has a device that makes and keeps passkeys. */
export async function plugInPasskeyDevice(page: Page): Promise<{ readonly countPasskeys: () => Promise<number> }> {
  const device = await page.context().newCDPSession(page)
  await device.send('WebAuthn.enable')
  const { authenticatorId } = await device.send('WebAuthn.addVirtualAuthenticator', {
    options: {
      protocol: 'ctap2',
      transport: 'internal',
      hasResidentKey: true,
      hasUserVerification: true,
      isUserVerified: true,
      automaticPresenceSimulation: true,
    },
  })
  return {
    countPasskeys: async () => (await device.send('WebAuthn.getCredentials', { authenticatorId })).credentials.length,
  }
}

/**
 * Signs in as the sandbox's demo account, which has money and a key, and opens a page. Without the form: loading two more pages is
 * most of the time of many tests, and `routes.test.ts` clicks through it.
 */
export async function signInAsDeveloper(dashboard: Dashboard, page: Page, path?: string): Promise<void> {
  await grantDeveloperSession(dashboard, page.context())
  await page.goto(`${dashboard.origin}${path ?? '/'}`)
  if (path === undefined) await atOverview(page)
}

/** Puts a session of the sandbox's demo account into the context's cookies. */
export async function grantDeveloperSession({ origin }: Dashboard, { request }: BrowserContext): Promise<void> {
  const answer = await request.post(`${origin}/api/auth/local`, { headers: { origin }, data: {} })
  assert.equal(answer.status(), 200)
}

export async function atOverview(page: Page): Promise<void> {
  await page.getByRole('heading', { name: 'Overview', level: 1 }).waitFor()
}

/** Makes a key in the dialog and returns its secret, as it is read off the page. */
export async function createKey(page: Page, name: string, limit?: string): Promise<string> {
  await page.getByRole('link', { name: 'Keys', exact: true }).first().click()
  // The overview of a new account has a button of that name too: it would be clicked while the page is still on its way.
  await page.getByRole('heading', { name: 'Keys', level: 1 }).waitFor()
  await page.getByRole('button', { name: 'Create key' }).first().click()
  const dialog = page.getByRole('dialog', { name: 'Create a key' })
  await dialog.getByLabel('Name').fill(name)
  if (limit !== undefined) await dialog.getByLabel('Limit').fill(limit)
  await dialog.getByRole('button', { name: 'Create key' }).click()
  const secret = (await page.getByTestId('secret').textContent())!.trim()
  assert.match(secret, /^penny_[0-9A-Za-z]{40}$/)
  await page.getByRole('button', { name: 'Copy key' }).click()
  await page.getByRole('button', { name: 'Done' }).click()
  return secret
}

/** What the pill in the top bar says can be spent, in atomic units. */
export async function availableBalance(page: Page): Promise<bigint> {
  return BigInt((await page.getByTestId('balance-pill').getAttribute('data-available'))!)
}

/**
 * Presses a button of a page whose session has ended, and not with the mouse: the page may have read its data again and learned of the
 * end, and then the sign-in covers the button.
 */
export async function pressCovered(button: Locator): Promise<void> {
  await button.dispatchEvent('click')
}
