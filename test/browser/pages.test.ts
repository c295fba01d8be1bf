import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import type { Page } from 'playwright-core'
import { assertAccessibleInThemes, windows } from './accessible.ts'
import { dashboardSuite } from './dashboard.ts'
import { openAccountWithPasskey, signInAsDeveloper } from './person.ts'
import { ask, gotoPlayground, say as scripted } from './playground.ts'

// Every page, as it looks with some traffic, in both themes and at both widths. With PICTURES=1 the pictures in
// docs/pictures are made anew; an ordinary run changes no file.

const dashboard = dashboardSuite({ SANDBOX_TOKENS_PER_SECOND: '0' })
const pictures =
  process.env.PICTURES === '1' ? fileURLToPath(new URL('../../docs/pictures/', import.meta.url)) : undefined

/** Every element that an answer can have. */
const answerWithEverything = `## Retry with backoff

Wait **twice as long** each time, see [the guide](https://example.com). Use \`retry()\`:

1. Send the request.
2. On a transient error, wait and send it again.

\`\`\`ts
export async function retry(url: string, attempts = 5): Promise<Response> {
  const response = await fetch(url) // may fail
  return response.ok || attempts === 0 ? response : retry(url, attempts - 1)
}
\`\`\`

| status | retry | wait |
|---|---|--:|
| 429 | yes | 100 ms |
| 404 | no | 0 ms |

> Never retry a request that is not idempotent.`

let traffic: Promise<Traffic> | undefined

type Traffic = { readonly requestId: string; readonly keyId: string }

for (const [name, viewport] of Object.entries(windows)) {
  test(`every page is accessible on a ${name} screen, in both themes`, async () => {
    traffic ??= makeTraffic()
    const made = await traffic
    const page = await dashboard.open({ viewport })
    const look = (title: string) => inspect(page, title, name)
    await page.goto(dashboard.origin)
    await page.getByTestId('prices').getByRole('cell', { name: 'gpt-6-astra' }).waitFor()
    await look('front')
    await page.goto(`${dashboard.origin}/login`)
    await page.getByRole('button', { name: 'Continue as local developer' }).waitFor()
    await look('sign-in')
    await signInAsDeveloper(dashboard, page)
    for (const [title, path, ready] of pagesOf(made)) {
      await page.goto(`${dashboard.origin}${path}`)
      await page.locator(ready).first().waitFor()
      await look(title)
    }
    await gotoPlayground(dashboard, page)
    await ask(page, scripted(answerWithEverything))
    await look('conversation')
    await page.getByRole('button', { name: 'Code', exact: true }).click()
    await look('code')
  })
}

test('the first steps and the one sight of a secret are accessible, on any screen', async () => {
  for (const [name, viewport] of Object.entries(windows)) {
    const page = await dashboard.open({ viewport })
    await openAccountWithPasskey(dashboard, page)
    await page.getByTestId('checklist').waitFor()
    await inspect(page, 'first-steps', name)
    await page.goto(`${dashboard.origin}/keys?create=1`)
    await page.getByLabel('Name').fill('Nightly job')
    await page.getByRole('dialog').getByRole('button', { name: 'Create key' }).click()
    await page.getByTestId('secret').waitFor()
    await inspect(page, 'secret', name)
  }
})

test('a page that is not there says so, and offers a search', async () => {
  const page = await dashboard.open()
  await page.goto(`${dashboard.origin}/requests-of-nobody`)
  await page.getByRole('heading', { name: 'Page not found' }).waitFor()
  await inspect(page, 'not-found', 'wide')
})

test('filters are in the address: reload and Back bring them back', async () => {
  const page = await dashboard.open()
  await signInAsDeveloper(dashboard, page, '/requests')
  await page.getByTestId('request-row').first().waitFor()
  await page.getByRole('button', { name: 'Status: any' }).click()
  await page.getByRole('checkbox', { name: 'Refused' }).check()
  await page.waitForURL(/status=refused/)
  await page.reload()
  await page.getByRole('button', { name: 'Status: Refused' }).waitFor()
  await page.goBack()
  await page.getByRole('button', { name: 'Status: any' }).waitFor()
})

function pagesOf({
  requestId: id,
  keyId,
}: Traffic): readonly (readonly [title: string, path: string, ready: string])[] {
  return [
    ['overview', '/', '[data-row]'],
    ['requests', '/requests', '[data-row]'],
    ['request', `/requests/${id}`, '[data-testid=explain]'],
    ['usage', '/usage?range=30d', '[data-testid=usage-table]'],
    ['keys', '/keys', '[data-testid=key-row]'],
    ['key', `/keys/${keyId}`, '[data-testid=refusals]'],
    ['create-key', '/keys?create=1', 'dialog'],
    ['device', '/device', 'text=Shown by penny login'],
    ['funds', '/funds', '[data-testid=deposit-row]'],
    ['statement', '/funds/statement', '[data-testid=statement]'],
    ['playground', '/playground', '[data-testid=composer]'],
    ['models', '/models', '[data-testid=model-row]'],
    ['settings', '/settings', 'text=Local developer'],
    ['receipt', `/r/${id}`, '[data-testid=checks]'],
    ['docs', '/docs', 'h1'],
    ['status', '/status', '[data-testid=service-status] svg'],
    ['operator', '/operator', '[data-testid=parts]'],
    ['accounts', '/operator/accounts', '[data-testid=operator-accounts] :is(tbody tr, [data-testid=operator-account])'],
    ['revenue', '/operator/revenue', '[data-testid=revenue-models]'],
  ]
}

async function inspect(page: Page, title: string, width: string): Promise<void> {
  await assertAccessibleInThemes(page, title, width)
  for (const colorScheme of ['light', 'dark'] as const) {
    if (pictures === undefined || !isPictured(title, colorScheme, width)) continue
    await page.emulateMedia({ colorScheme })
    mkdirSync(pictures, { recursive: true })
    // Without this, buttons are pictured half-way between the colours of two themes.
    const path = join(pictures, `${title}-${colorScheme}-${width}.png`)
    await page.screenshot({ path, animations: 'disabled' })
    await page.emulateMedia({ colorScheme: 'light' })
  }
}

/** A picture of each page; a few also dark, and on a telephone. */
function isPictured(title: string, theme: string, width: string): boolean {
  if (theme === 'dark') return width === 'wide' && ['overview', 'request', 'usage'].includes(title)
  return width === 'wide' || ['overview', 'requests', 'funds'].includes(title)
}

/** A month of requests, then a little of everything now; one of them succeeded and has its receipt. */
async function makeTraffic(): Promise<Traffic> {
  await dashboard.penny('sandbox', 'replay', '--days', '30', '--per-day', '15')
  const models = ['gpt-5.6-terra', 'gpt-6-astra', 'gpt-5.6-luna', 'gpt-5.6-terra', 'gpt-5.3-codex-spark']
  for (let turn = 0; turn < 20; turn += 1)
    await send({ model: models[turn % 5], max_tokens: 400, messages: [say(`Hello [sandbox:tokens ${20 + turn * 9}]`)] })
  await send({ model: 'gpt-none', messages: [say('Hello')] })
  await send({ max_tokens: 60_000, model: 'gpt-6-astra', messages: [say('Hello')] })
  await send({ max_tokens: 100, messages: [say('[sandbox:error 500]')] })
  const id = await send({ max_tokens: 400, messages: [say('What is a penny? [sandbox:tokens 120]')] })
  while (!(await fetch(`${dashboard.origin}/api/receipts/${id}`)).ok)
    await new Promise((resolve) => setTimeout(resolve, 100))
  const row = await fetch(`${dashboard.origin}/api/requests/${id}`, {
    headers: { authorization: `Bearer ${dashboard.apiKey}` },
  })
  const { key } = (await row.json()) as { key: { id: string } }
  return { requestId: id, keyId: key.id }
}

const say = (content: string) => ({ role: 'user', content })

async function send(body: object): Promise<string> {
  const answer = await fetch(`${dashboard.baseUrl}/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${dashboard.apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({ web_search: false, web_fetch: false, ...body }),
  })
  await answer.text()
  return answer.headers.get('x-router-request-id')!
}
