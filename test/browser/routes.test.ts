import assert from 'node:assert/strict'
import { after, beforeEach, test } from 'node:test'
import type { Browser, BrowserContext, Page } from 'playwright-core'
import { pagePaths } from '../../src/site/page-paths.ts'
import { exampleCount } from '../support/examples.ts'
import { launchBrowser } from './chromium.ts'
import { dashboardSuite } from './dashboard.ts'
import { grantDeveloperSession, openAccountWithPasskey } from './person.ts'

// Every route of the dashboard for every kind of visitor, each group of visits with an empty profile and in one tab: a tab per visit
// took most of the time. A visit fails when the page hangs, keeps loading, logs an error, leaves a promise rejected or navigates in a
// loop.

const dashboard = dashboardSuite({ SANDBOX_TOKENS_PER_SECOND: '0' })
/** Only waited for by a visit that fails. */
const settleMsMax = 60_000
const settlePollMs = 50
/** The document itself, then at most one redirect inside the page and one more for luck. */
const navigationsMax = 3
const parallelVisits = 2

type State = Awaited<ReturnType<BrowserContext['storageState']>>
type Visitors = { readonly developer: State; readonly stranger: State; readonly expired: State }
type Ids = { readonly request: string; readonly key: string }
type Seen = {
  readonly status: number
  readonly url: string
  readonly heading: string
  readonly alert: boolean
  readonly text: string
}

let browser: Browser
let visitors: Visitors
let ids: Ids
let routes: readonly string[]

let prepared: Promise<void> | undefined
// The suite's own `before` starts the service; these hooks of one file do not wait for each other.
beforeEach(() => (prepared ??= prepare()))
after(() => browser?.close())

/** A request, three visitors and the routes. */
async function prepare(): Promise<void> {
  browser = await launchBrowser()
  ids = await sendRequest()
  visitors = {
    developer: await stateAfter((context) => grantDeveloperSession(dashboard, context)),
    stranger: await stateAfter(async (context) => openAccountWithPasskey(dashboard, await newPage(context))),
    expired: await stateAfter(async (context) => {
      await grantDeveloperSession(dashboard, context)
      const { session } = await (await context.request.get(`${dashboard.origin}/api/session`)).json()
      await dashboard.database.query(`update sessions set expires_at = clock_timestamp() where id = $1`, [session.id])
    }),
  }
  routes = await routesOfRouter()
  assert.ok(routes.length > 10)
}

test('the server knows every route of the router and no other', () => {
  assert.deepEqual([...routes].sort(), [...pagePaths].sort())
})

/** `npm test` opens every page for its owner, and makes a few of the other visits. */
const some = (paths: readonly string[]) =>
  paths.slice(0, exampleCount('ROUTE_VISITS', { short: 3, full: paths.length }))

/** Exist for an operator alone; in the sandbox that is the local developer. */
const ofOperator = (route: string) => route.startsWith('/operator')

test('the operator’s pages are not found for anyone else: status and page of an unknown address', async () => {
  for (const visitor of [undefined, 'expired', 'stranger'] as const) {
    await visitAll(visitor, some(routes.filter(ofOperator)), (route, seen) => {
      assert.deepEqual([seen.status, seen.url, seen.heading], [404, addressOf(route), 'Page not found'])
    })
  }
})

test('a visitor without a session gets the front page, the sign-in form or the public page, at the address they opened', async () => {
  const forAnybody = routes.filter((route) => !ofOperator(route))
  await visitAll(undefined, some(forAnybody), (route, seen) => {
    assert.equal(seen.url, addressOf(route))
    assert.equal(seen.heading, publicHeadings[route] ?? 'Sign in')
  })
})

test('an expired session is treated like no session', async () => {
  const forAnybody = routes.filter((route) => !ofOperator(route))
  await visitAll('expired', some(forAnybody), (route, seen) => {
    assert.equal(seen.url, addressOf(route))
    assert.equal(seen.heading, publicHeadings[route] ?? 'Sign in')
  })
})

test('every page opens directly for its owner', async () => {
  await visitAll('developer', routes, (route, seen) => {
    assert.equal(seen.url, addressOf(route === '/login' ? '/' : route))
    assert.ok(!['Sign in', 'Page not found'].includes(seen.heading), seen.heading)
    assert.equal(seen.status, 200)
    assert.equal(seen.alert, false, seen.text)
  })
})

test('the ids of another account and ids that do not exist are reported on the page, without other ids', async () => {
  const withId = routes.filter((route) => route.includes('$') && route !== '/r/$id')
  await visitAll('stranger', withId, (_route, seen) => {
    assert.equal(seen.alert, true)
    assert.doesNotMatch(seen.text.replaceAll(ids.request, ''), /req_[0-9a-f]{8}/)
  })
  for (const id of [`req_${'0'.repeat(32)}`, '00000000-0000-4000-8000-000000000000', 'nonsense', '%F0%9F%92%B8']) {
    const unknown = routes.filter((route) => route.includes('$')).map((route) => route.replace('$id', id))
    await visitAll('developer', some(unknown), (_route, seen) => {
      assert.equal(seen.alert, true)
      assert.doesNotMatch(seen.text.replaceAll(id, ''), /req_[0-9a-f]{8}/)
    })
  }
})

test('an unknown address is answered 404 with the not-found page, with and without a session', async () => {
  const unknown = ['/nope', '/requests/a/b', '/keys/a/b/c', '/docs-of-nobody', '/settings/x?y=1']
  for (const visitor of [undefined, 'developer'] as const) {
    await visitAll(visitor, unknown, (route, seen) => {
      assert.deepEqual([seen.status, seen.url, seen.heading], [404, addressOf(route), 'Page not found'])
    })
  }
})

test('a deep link shows its page right after signing in, with its query', async () => {
  const path = '/requests?status=refused&range=24h'
  const page = await newPage(await browser.newContext())
  await page.goto(dashboard.origin + path)
  await page.getByRole('button', { name: 'Continue as local developer' }).click()
  await page.getByRole('button', { name: 'Status: Refused' }).waitFor()
  assert.equal(page.url(), dashboard.origin + path)
  await page.reload()
  await page.getByRole('button', { name: 'Status: Refused' }).waitFor()
  await page.context().close()
})

test('the logo of a public page leads to the front page, and from there the way in', async () => {
  const page = await newPage(await browser.newContext())
  for (const path of [`/r/${ids.request}`, '/docs']) {
    await page.goto(dashboard.origin + path)
    await page.getByRole('link', { name: 'Penny Router' }).first().click()
    await page.getByTestId('prices').getByRole('cell', { name: 'gpt-6-astra' }).waitFor()
  }
  await page.getByRole('link', { name: 'Sign in' }).click()
  await page.getByRole('button', { name: 'Continue as local developer' }).click()
  await page.getByRole('heading', { name: 'Overview', level: 1 }).waitFor()
  await page.context().close()
})

/** The headings of the pages that need no session. */
const publicHeadings: Readonly<Record<string, string>> = {
  '/': 'An OpenAI-compatible API, paid per request in USDC',
  '/models': 'Models',
  '/r/$id': 'Receipt',
  '/status': 'Status',
}

function addressOf(route: string): string {
  return dashboard.origin + route.replace('$id', route.startsWith('/keys') ? ids.key : ids.request)
}

type Check = (route: string, seen: Seen) => void

async function visitAll(visitor: keyof Visitors | undefined, paths: readonly string[], check: Check): Promise<void> {
  const waiting = [...paths]
  const work = async () => {
    const context = await browser.newContext(visitor === undefined ? {} : { storageState: visitors[visitor] })
    const page = await newPage(context)
    const seen: Events = { complaints: [], navigations: 0 }
    page.on('pageerror', (error) => seen.complaints.push(error.message))
    page.on('console', (message) => {
      const isFault = message.type() === 'error' && !/Failed to load resource/.test(message.text())
      if (isFault) seen.complaints.push(message.text())
    })
    page.on('framenavigated', () => {
      seen.navigations += 1
    })
    for (let route = waiting.shift(); route !== undefined; route = waiting.shift()) {
      seen.navigations = 0
      // A page that learns that its session has expired forgets it.
      if (visitor !== undefined) await context.addCookies(visitors[visitor].cookies)
      const where = `${route} as ${visitor ?? 'visitor without a session'}`
      const response = await page.goto(addressOf(route), { waitUntil: 'commit' })
      await reach(page, where, (look) => check(route!, { status: response!.status(), url: page.url(), ...look }))
      assert.deepEqual(seen.complaints, [], where)
      assert.ok(seen.navigations <= navigationsMax, `${where}: ${seen.navigations} navigations`)
    }
    await context.close()
  }
  await Promise.all(Array.from({ length: parallelVisits }, work))
}

type Events = { readonly complaints: string[]; navigations: number }

type Look = Omit<Seen, 'status' | 'url'>

/** Waits until the page is what it should be. A page that is between two states is looked at again; one that hangs is not. */
async function reach(page: Page, where: string, check: (seen: Look) => void): Promise<void> {
  const deadline = Date.now() + settleMsMax
  for (;;) {
    const seen = await settle(page).catch((error) => assert.fail(`${where} does not settle: ${error.message}`))
    try {
      return check(seen)
    } catch (error) {
      if (Date.now() > deadline) throw new Error(`${where}: ${JSON.stringify(seen)}`, { cause: error })
    }
  }
}

/** What the page shows once it answers, has its heading, and neither its router nor any part of it is loading. */
async function settle(page: Page): Promise<Look> {
  const look = () => {
    const { __TSR_ROUTER__: router } = self as unknown as { __TSR_ROUTER__?: { state: { status: string } } }
    const heading = document.querySelector('h1')
    if (router?.state.status !== 'idle' || heading === null) return false
    if (document.querySelector('[aria-busy=true]') !== null) return false
    return {
      heading: heading.textContent,
      alert: document.querySelector('main [role=alert]') !== null,
      text: document.querySelector('main')!.innerText,
    }
  }
  // By default it looks with every frame, and without a graphics card each frame takes CPU time.
  const handle = await page.waitForFunction(look, undefined, { polling: settlePollMs })
  return (await handle.jsonValue()) as Look
}

async function newPage(context: BrowserContext): Promise<Page> {
  const page = await context.newPage()
  page.setDefaultTimeout(settleMsMax)
  return page
}

async function stateAfter(act: (context: BrowserContext) => Promise<void>): Promise<State> {
  const context = await browser.newContext()
  await act(context)
  const state = await context.storageState()
  await context.close()
  return state
}

/** TanStack Router leaves itself in the page, for its developer tools. */
async function routesOfRouter(): Promise<readonly string[]> {
  const context = await browser.newContext()
  const page = await newPage(context)
  await page.goto(`${dashboard.origin}/status`)
  const paths = await page.evaluate(() =>
    Object.keys(
      (self as unknown as { __TSR_ROUTER__: { routesByPath: Record<string, unknown> } }).__TSR_ROUTER__.routesByPath,
    ),
  )
  await context.close()
  return paths
}

/** A request of the demo account that has its receipt. */
async function sendRequest(): Promise<Ids> {
  const headers = { authorization: `Bearer ${dashboard.apiKey}`, 'content-type': 'application/json' }
  const body = JSON.stringify({ max_tokens: 50, web_search: false, messages: [{ role: 'user', content: 'Hello' }] })
  const answer = await fetch(`${dashboard.baseUrl}/chat/completions`, { method: 'POST', headers, body })
  await answer.text()
  const request = answer.headers.get('x-router-request-id')!
  while (!(await fetch(`${dashboard.origin}/api/receipts/${request}`)).ok)
    await new Promise((resolve) => setTimeout(resolve, 100))
  const row = await fetch(`${dashboard.origin}/api/requests/${request}`, { headers })
  return { request, key: ((await row.json()) as { key: { id: string } }).key.id }
}
