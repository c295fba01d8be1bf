import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Page } from 'playwright-core'
import { rowArray } from '../../src/db/array-literal.ts'
import { createRequestId } from '../../src/ledger/request-id.ts'
import { until } from '../support/until.ts'
import { dashboardSuite } from './dashboard.ts'
import { signInAsDeveloper } from './person.ts'

const dashboard = dashboardSuite()
// Ten thousand do as well, and take three times as long: LOGGED_REQUESTS=10000.
const logged = Number(process.env.LOGGED_REQUESTS ?? 3_000)
/** A screen of rows, what is kept ready above and below it, and the row that has the focus. */
const rowsInPageMax = 80
/** `record_refusals` has the same number. */
const rowsPerMinuteMax = 100

test('thousands of requests scroll to the end with a screenful of them in the page, and the focus is never lost', async () => {
  await refuseRequests(logged)
  const page = await dashboard.open()
  await signInAsDeveloper(dashboard, page, '/requests')
  const table = page.getByRole('table', { name: 'Requests, newest first' })
  await page.locator(`table[aria-rowcount="${logged + 2}"]`).waitFor()

  assert.equal(await heightOf(page, '[aria-rowindex="9"]'), 40, 'the height that gaps are counted in')

  await page.keyboard.press('j')
  const first = await focusedRow(page)
  assert.equal(first, 2, 'the header is row 1')
  await scrollDownTo(page, `[aria-rowindex="${logged + 1}"][data-testid=request-row]`)
  assert.equal(await focusedRow(page), first, 'the row that has the focus stays, out of sight')
  assert.equal(await table.locator(`[aria-rowindex="${logged + 2}"][data-testid=totals]`).count(), 1)

  await page.keyboard.press('j')
  assert.equal(await focusedRow(page), first + 1, 'and the next one follows it')
  await page.waitForFunction(() => window.scrollY < 1_000)
  await assertFewRows(page)
})

test('a busy page that hears in one call that its end was far and is near reads on', async () => {
  const page = await dashboard.open()
  await page.addInitScript(() => {
    const { IntersectionObserver } = window
    window.IntersectionObserver = class extends IntersectionObserver {
      constructor(callback: IntersectionObserverCallback, options?: IntersectionObserverInit) {
        const far = { isIntersecting: false } as IntersectionObserverEntry
        super((moments, observer) => callback([far, ...moments], observer), options)
      }
    }
  })
  await signInAsDeveloper(dashboard, page, '/requests')
  await scrollDownTo(page, '[aria-rowindex="451"][data-testid=request-row]')
})

test('on a narrow screen too, and each item says its place', async () => {
  const page = await dashboard.open({ viewport: { width: 390, height: 844 } })
  await signInAsDeveloper(dashboard, page, '/requests')
  await page.locator(`[aria-posinset="1"][aria-setsize="${logged}"]`).waitFor()
  assert.equal(await heightOf(page, '[aria-posinset="1"]'), 56, 'the height that gaps are counted in')
  await scrollDownTo(page, '[aria-posinset="450"]')
})

test('a page that cannot be read is requested once, and Retry reads it', async () => {
  const page = await dashboard.open()
  const nextPage = /\/api\/requests\?.*cursor=/
  let refused = 0
  await page.route(nextPage, (route) => {
    refused += 1
    const error = { message: 'Your session has ended.', code: 'session_required', request_id: 'req_1' }
    return route.fulfill({ status: 401, contentType: 'application/json', body: JSON.stringify({ error }) })
  })
  await signInAsDeveloper(dashboard, page, '/requests')
  const rows = (count: number) => page.locator(`[data-testid=request-row][aria-rowindex="${count + 1}"]`)
  await rows(1).waitFor()
  await page.evaluate(() => window.scrollTo(0, document.documentElement.scrollHeight))
  await page.getByText('Your session has ended', { exact: true }).waitFor()
  // As many round trips as a loop would need to show.
  for (let call = 0; call < 20; call += 1) await page.evaluate(async () => (await fetch('/api/session')).status)
  assert.equal(refused, 1)

  await page.unroute(nextPage)
  await page.keyboard.press('Escape')
  await page.getByTestId('sign-in-again').waitFor({ state: 'detached' })
  await page.getByRole('button', { name: 'Retry' }).click()
  await page.getByRole('button', { name: 'Retry' }).waitFor({ state: 'detached' })
  await scrollDownTo(page, `[aria-rowindex="240"][data-testid=request-row]`)
})

test('after a gap in the live stream sums are read again, and a long list says that rows may be missing', async () => {
  await refuseRequests(900)
  const page = await dashboard.open()
  await signInAsDeveloper(dashboard, page, '/requests')
  await scrollDownTo(page, '[aria-rowindex="841"][data-testid=request-row]')
  await page.evaluate(() => window.scrollTo(0, 0))
  const top = page.locator('[data-testid=request-row][aria-rowindex="2"]')
  const newest = await top.getAttribute('data-id')
  const sums = page.waitForRequest('**/api/requests/totals*')
  // The events of what follows are not written until the service watches the account again.
  await dashboard.database.query('update accounts set watched_until = null')
  await refuseRequests(1)
  const reload = page.getByRole('button', { name: 'Requests may be missing here. Reload' })
  await reload.waitFor()
  await sums
  assert.equal(await top.getAttribute('data-id'), newest)
  await reload.click()
  await page.locator(`[data-testid=request-row][aria-rowindex="2"]:not([data-id="${newest}"])`).waitFor()
  await page.locator(`[data-testid=request-row][aria-rowindex="3"][data-id="${newest}"]`).waitFor()
  assert.equal(await reload.count(), 0)
})

test('"1 h" moves with the clock, except while the reader looks at a row', async () => {
  await refuseRequests(1)
  const page = await dashboard.open()
  await page.clock.install()
  const starts: number[] = []
  page.on('request', (request) => {
    const { pathname, searchParams } = new URL(request.url())
    if (pathname === '/api/requests') starts.push(Date.parse(searchParams.get('from')!))
  })
  await signInAsDeveloper(dashboard, page, '/requests?range=1h')
  await page.getByTestId('request-row').first().hover()
  await page.clock.fastForward('02:00:00')
  // As many round trips as a request would need to show.
  for (let call = 0; call < 5; call += 1) await page.evaluate(async () => (await fetch('/api/session')).status)
  assert.deepEqual(new Set(starts).size, 1)
  await page.mouse.move(0, 0)
  await until(() => starts.at(-1)! - starts[0]! >= 7_200_000)
})

/** To the bottom, again and again, as more is read, until the row is there. */
async function scrollDownTo(page: Page, row: string): Promise<void> {
  for (;;) {
    const height = await page.evaluate(() => document.documentElement.scrollHeight)
    await page.waitForFunction(
      ([last, before]) => {
        const { scrollHeight } = document.documentElement
        window.scrollTo(0, scrollHeight)
        return document.querySelector(last) !== null || scrollHeight > Number(before)
      },
      [row, String(height)] as const,
    )
    await assertFewRows(page)
    if ((await page.locator(row).count()) > 0) return
  }
}

async function assertFewRows(page: Page): Promise<void> {
  const count = await page.locator('main [data-id]').count()
  assert.ok(count > 0 && count <= rowsInPageMax, `${count} rows in the page`)
}

function heightOf(page: Page, row: string): Promise<number> {
  return page.locator(row).evaluate((element) => element.getBoundingClientRect().height)
}

function focusedRow(page: Page): Promise<number> {
  return page.evaluate(() => Number(document.activeElement?.closest('tr')?.ariaRowIndex))
}

/** As the ledger writes them: rows and hourly sums, no money. */
async function refuseRequests(count: number): Promise<void> {
  const { database } = dashboard
  const [key] = await database.query<{ partition: number; account_id: string; id: string }>(
    `select partition, account_id, id from api_keys order by created_at limit 1`,
  )
  const { partition, account_id, id } = key!
  const now = Date.now()
  for (let from = 0; from < count; from += rowsPerMinuteMax) {
    const length = Math.min(rowsPerMinuteMax, count - from)
    const ids = Array.from({ length }, (_, at) => createRequestId(partition, now - from - at))
    // Another minute begins: a key gets so many rows of refusals in one.
    await database.query('update api_keys set refusals_from = null, refusals = 0 where id = $1', [id])
    await database.query('select record_refusals($1, $2, $3, $4)', [
      partition,
      account_id,
      [account_id],
      rowArray(ids.map((one) => [one, account_id, id, 'gpt-5.6-terra', false, 100, 'insufficient_balance'])),
    ])
  }
}
