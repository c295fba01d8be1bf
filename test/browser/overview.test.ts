import assert from 'node:assert/strict'
import { test } from 'node:test'
import { errorCodes } from '../../web/src/pages/requests/refusals.ts'
import { until } from '../support/until.ts'
import { dashboardSuite } from './dashboard.ts'
import { signInAsDeveloper } from './person.ts'

const dashboard = dashboardSuite({ SANDBOX_TOKENS_PER_SECOND: '0' })

test('the bars of the spend chart are the sums of the ledger, and a click on one opens its requests', async () => {
  for (const [model, tokens] of [
    ['gpt-5.6-terra', 30],
    ['gpt-6-astra', 70],
    ['gpt-5.6-luna', 10],
  ] as const)
    await chat({ model, messages: [{ role: 'user', content: `Hi [sandbox:tokens ${tokens}]` }] })
  const page = await dashboard.open()
  await signInAsDeveloper(dashboard, page)
  const bars = page.getByTestId('spend-chart').locator('g[data-total]:not([data-total="0"])')
  await bars.first().waitFor()
  const shown = await bars.evaluateAll((found) =>
    found.map((bar) => [bar.getAttribute('data-start')!, BigInt(bar.getAttribute('data-total')!)] as const),
  )
  const rows = await dashboard.database.query<{ start: Date; charged: string; count: string }>(
    `select date_trunc('minute', created_at) as start, sum(charged)::text as charged, count(*) from requests group by 1 order by 1`,
  )
  assert.deepEqual(
    shown.map(([start, total]) => [Date.parse(start), total]),
    rows.map(({ start, charged }) => [start.getTime(), BigInt(charged)]),
  )

  await bars.first().hover()
  await bars.first().click()
  await page.waitForURL(/\/requests\?from=/)
  const totals = page.getByTestId('totals')
  await totals.waitFor()
  assert.equal(await totals.getAttribute('data-charged'), rows[0]!.charged)
  assert.equal(await page.getByTestId('request-row').count(), Number(rows[0]!.count))
})

test('requests are filtered by any error code from a list', async () => {
  await chat({ model: 'gpt-none', messages: [{ role: 'user', content: 'Hi' }] })
  await chat({ messages: [{ role: 'user', content: '[sandbox:error 500]' }] })
  const page = await dashboard.open()
  await signInAsDeveloper(dashboard, page, '/requests')
  await page.getByRole('button', { name: 'Error code: any' }).click()
  const offered = await page.getByRole('dialog').getByRole('checkbox').count()
  assert.equal(offered, errorCodes.length)
  await page.getByRole('checkbox', { name: 'model_not_found' }).check()
  await page.waitForURL(/code=model_not_found/)
  await page.getByTestId('request-row').first().waitFor()
  await until(async () => (await page.getByTestId('request-row').count()) === 1)
  await page.getByRole('checkbox', { name: 'upstream_error' }).check()
  await until(async () => (await page.getByTestId('request-row').count()) === 2)
})

test('a filter that cannot be applied says so, and one that is entered keeps the focus', async () => {
  const page = await dashboard.open()
  await signInAsDeveloper(dashboard, page, '/requests')
  const find = page.getByLabel('Request id, completion id, receipt id or transaction')
  await find.fill('req_nothing')
  await find.press('Enter')
  await page.getByText('No requests match').waitFor()
  assert.ok(await find.evaluate((element) => element === document.activeElement))
  await page.getByRole('button', { name: 'Clear', exact: true }).click()
  await page.waitForFunction((box) => (box as HTMLInputElement).value === '', await find.elementHandle())

  await page.getByRole('button', { name: /^More filters/ }).click()
  const least = page.getByLabel('Charged at least (USDC)')
  await least.fill('0,05')
  await page.getByText('Enter an amount such as 0.05. The filter is not applied.').waitFor()
  await least.fill('0.05')
  await least.press('Enter')
  await page.waitForURL(/min=0\.05/)
})

test('a day of the usage page is typed by keyboard, and a field that is half typed changes nothing', async () => {
  const page = await dashboard.open()
  await signInAsDeveloper(dashboard, page, '/usage')
  await page.getByRole('button', { name: 'Choose days' }).click()
  await page.getByLabel('From (UTC)').focus()
  await page.keyboard.type('01')
  await page.keyboard.press('Backspace')
  await page.keyboard.type('152026')
  await page.waitForURL(/from=2026-01-15/)
  assert.equal(await page.getByLabel('From (UTC)').inputValue(), '2026-01-15')
})

test('the balance pill shows what is held, also when it is less than a cent', async () => {
  const page = await dashboard.open()
  await signInAsDeveloper(dashboard, page)
  const stop = new AbortController()
  const running = chat(
    { stream: true, max_tokens: 500, messages: [{ role: 'user', content: 'Wait [sandbox:stall-after 5]' }] },
    stop.signal,
  ).catch(() => {})
  const pill = page.locator('[data-testid=balance-pill]:not([data-held="0"])')
  await pill.waitFor()
  const held = BigInt((await pill.getAttribute('data-held'))!)
  assert.ok(held > 0n && held < 10_000n, String(held))
  const digits = held
    .toString()
    .padStart(6, '0')
    .replace(/0{1,4}$/, '')
  assert.match(await pill.innerText(), new RegExp(`\\$0\\.${digits}\\s+held`))
  stop.abort()
  await running
  await page.locator('[data-testid=balance-pill][data-held="0"]').waitFor()
})

test('the status page is public: each part has the word that the API has for it, and a strip of its last day', async () => {
  const page = await dashboard.open()
  const answered = page.waitForResponse((response) => response.url().endsWith('/api/status'))
  await page.goto(`${dashboard.origin}/status`)
  const status = (await (await answered).json()) as { ok: boolean; model: string; search: string; chain: string }
  const words: Readonly<Record<string, string>> = {
    working: 'Working',
    failing: 'Failing',
    unused: 'Not used yet',
    off: 'Off',
  }
  const parts = {
    API: status.ok ? 'working' : 'failing',
    Model: status.model,
    'Web search': status.search,
    Chain: status.chain,
  }
  const rows = page.getByTestId('service-status').getByRole('listitem')
  await rows.first().waitFor()
  assert.equal(await rows.count(), 4)
  for (const [at, [part, state]] of Object.entries(parts).entries()) {
    await rows.nth(at).getByText(part, { exact: true }).waitFor()
    await rows.nth(at).getByText(words[state]!, { exact: true }).waitFor()
    await rows
      .nth(at)
      .getByRole('img', { name: new RegExp(`^${part}, last 24 hours: `) })
      .waitFor()
  }
  await page.getByText('Match', { exact: true }).waitFor()
})

test('the chart of a page that stays open covers the range that it names', async () => {
  await dashboard.database.query(`update accounts set created_at = created_at - interval '10 days'`)
  const page = await dashboard.open()
  await page.clock.install()
  const starts: number[] = []
  page.on('request', (request) => {
    const { pathname, searchParams } = new URL(request.url())
    if (pathname === '/api/usage') starts.push(Date.parse(searchParams.get('from')!))
  })
  await signInAsDeveloper(dashboard, page)
  await until(() => starts.length > 0)
  await page.clock.fastForward('30:00')
  await until(() => starts.at(-1)! - starts[0]! >= 29 * 60_000)
})

async function chat(body: object, signal?: AbortSignal): Promise<void> {
  const answer = await fetch(`${dashboard.baseUrl}/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${dashboard.apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({ web_search: false, web_fetch: false, max_tokens: 400, ...body }),
    ...(signal !== undefined && { signal }),
  })
  await answer.text()
}
