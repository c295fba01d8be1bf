import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Page } from 'playwright-core'
import { assertAccessibleInThemes, windows } from './accessible.ts'
import { dashboardSuite } from './dashboard.ts'
import { openAccountWithPasskey, signInAsDeveloper } from './person.ts'

const dashboard = dashboardSuite({ SANDBOX_TOKENS_PER_SECOND: '0' })

async function shot(page: Page, name: string): Promise<void> {
  if (process.env.SHOTS !== undefined) await page.screenshot({ path: `${process.env.SHOTS}/${name}.png` })
}

test('an operator of an idle service sees that nothing needs attention, and empty tables that say so', async () => {
  const page = await dashboard.open()
  await signInAsDeveloper(dashboard, page)
  await page.getByRole('link', { name: 'Operator', exact: true }).click()
  await page.getByRole('heading', { name: 'Operator', level: 1 }).waitFor()
  await page.getByTestId('attention').getByText('Nothing needs your attention.').waitFor()
  await page.getByTestId('nodes').getByText('(this one)').waitFor()
  await page.getByTestId('parts').getByText('Relayer gas').waitFor()
  await shot(page, 'operator-idle')
  await page.getByRole('navigation', { name: 'Operator' }).getByRole('link', { name: 'Revenue' }).click()
  await page.getByText('No charges in this period').waitFor()
  await page.getByRole('navigation', { name: 'Operator' }).getByRole('link', { name: 'Accounts' }).click()
  await page.getByLabel('Account id, address').fill('nobody at all')
  await page.getByRole('button', { name: 'Search', exact: true }).click()
  await page.getByText('No account matches').waitFor()
})

test('an ordinary customer has no link to the operator’s pages, and finds none there', async () => {
  const page = await dashboard.open()
  await openAccountWithPasskey(dashboard, page)
  await page.getByRole('link', { name: 'Keys', exact: true }).first().waitFor()
  assert.equal(await page.getByRole('link', { name: 'Operator', exact: true }).count(), 0)
  const response = await page.goto(`${dashboard.origin}/operator/accounts`)
  assert.equal(response!.status(), 404)
  await page.getByRole('heading', { name: 'Page not found' }).waitFor()
})

test('an operator sees an error when the session cannot be read, and Retry opens the page', async () => {
  const page = await dashboard.open()
  await page.route('**/api/session', (route) => route.abort())
  await signInAsDeveloper(dashboard, page, '/operator')
  await page.getByRole('alert').getByText('The service did not respond').waitFor()
  assert.equal(await page.getByRole('heading', { name: 'Page not found' }).count(), 0)
  await shot(page, 'operator-session-unread')
  await page.unroute('**/api/session')
  await page.getByRole('button', { name: 'Retry' }).click()
  await page.getByRole('heading', { name: 'Operator', level: 1 }).waitFor()
})

test('an operator finds an account among many, sees revenue by model, and gets from a stuck withdrawal to its account', async () => {
  for (const model of ['gpt-5.6-terra', 'gpt-6-astra']) await ask({ model })
  await dashboard.database.query(
    `insert into accounts (partition, id, name, created_at)
     select 0, gen_random_uuid(), 'Customer ' || n, clock_timestamp() - n * interval '1 minute' from generate_series(1, 300) n`,
  )
  const page = await dashboard.open()
  await signInAsDeveloper(dashboard, page, '/operator/accounts')
  const rows = page.getByTestId('operator-accounts').locator('tbody tr')
  await rows.nth(49).waitFor()
  assert.equal(await rows.count(), 50)
  await page.getByRole('button', { name: 'Show more' }).click()
  await rows.nth(99).waitFor()
  await page.getByLabel('Account id, address').fill('customer 29')
  await page.getByRole('button', { name: 'Search', exact: true }).click()
  await page.waitForURL(/find=customer/)
  await page.waitForFunction(() => document.querySelectorAll('[data-testid=operator-accounts] tbody tr').length === 11)
  await page.reload()
  await rows.nth(10).waitFor()

  await page.goto(`${dashboard.origin}/operator/revenue`)
  await page.getByTestId('revenue-models').getByText('gpt-6-astra').waitFor()
  await page.getByTestId('revenue-models').getByText('unknown').first().waitFor()
  await page.getByText('30 d', { exact: true }).click()
  await page.waitForURL(/days=30/)

  const [stuck] = await dashboard.database.query<{ id: string }>(
    `insert into transfers (partition, kind, id, account_id, amount, counterparty, state, created_at)
     select partition, 'withdrawal', gen_random_uuid(), id, 1000, $1, 'sent', clock_timestamp() - interval '2 hours'
       from accounts where name = 'Customer 7' returning account_id as id`,
    [`0x${'b2'.repeat(20)}`],
  )
  await page.goto(`${dashboard.origin}/operator`)
  const item = page.getByTestId('attention-item').filter({ hasText: 'A withdrawal is not paid' })
  assert.equal(
    await item.getByRole('link', { name: 'Runbook' }).getAttribute('href'),
    '/docs/runbooks/settlement-stuck',
  )
  await shot(page, 'operator-attention')
  await item.getByRole('link', { name: 'Account' }).click()
  await page.getByTestId('operator-accounts').getByText('Customer 7').waitFor()
  assert.ok(page.url().includes(stuck!.id))
})

test('the operator’s pages are accessible in both themes, on any screen', async () => {
  for (const [name, viewport] of Object.entries(windows)) {
    const page = await dashboard.open({ viewport })
    await signInAsDeveloper(dashboard, page)
    for (const [path, ready] of [
      ['/operator', '[data-testid=nodes]'],
      ['/operator/accounts', '[data-testid=operator-accounts] :is(tbody tr, li)'],
      ['/operator/revenue', '[data-testid=revenue-models] tbody tr'],
    ] as const) {
      await page.goto(dashboard.origin + path)
      await page.locator(ready).first().waitFor()
      await shot(page, `${path.slice(1).replace('/', '-')}-${name}`)
      await assertAccessibleInThemes(page, path, name)
    }
  }
})

async function ask(body: object): Promise<void> {
  const answer = await fetch(`${dashboard.baseUrl}/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${dashboard.apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({ max_tokens: 50, web_search: false, messages: [{ role: 'user', content: 'Hi' }], ...body }),
  })
  assert.equal(answer.status, 200, await answer.text())
}
