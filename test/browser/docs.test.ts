import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { after, before, type TestContext, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { getRequestListener } from '@hono/node-server'
import { Hono } from 'hono'
import type { Browser, Page } from 'playwright-core'
import type { ApiBindings } from '../../src/api/router.ts'
import { loadPriceList } from '../../src/billing/price-list.ts'
import { siteOf } from '../../src/http/origin.ts'
import { Dashboard } from '../../src/site/pages/dashboard.ts'
import { errorsMarkdown } from '../../src/site/pages/errors.ts'
import { modelsMarkdown } from '../../src/site/pages/models.ts'
import { routePages } from '../../src/site/route-pages.ts'
import { atEnd } from '../support/at-end.ts'
import { findViolations } from './accessible.ts'
import { launchBrowser, openContext } from './chromium.ts'

const root = (path: string) => fileURLToPath(new URL(`../../${path}`, import.meta.url))

let browser: Browser
before(async () => {
  browser = await launchBrowser()
})
after(() => browser.close())

async function openPage(t: TestContext): Promise<Page> {
  const context = await openContext(browser)
  atEnd(t, () => context.close())
  return context.newPage()
}

/** The documentation alone, on a port of its own. */
async function serveDocs(t: TestContext): Promise<string> {
  const app = new Hono<ApiBindings>()
  routePages(app, {
    admitVisitor: async () => {},
    site: siteOf('http://localhost:8402'),
    dashboard: Dashboard.load(root('web/dist')),
    docs: {
      folder: root('docs'),
      generated: { 'errors.md': errorsMarkdown(), 'models.md': modelsMarkdown(loadPriceList(undefined)) },
    },
    openApi: readFileSync(root('openapi.json'), 'utf8'),
  })
  const server = createServer(getRequestListener(app.fetch)).listen(0, '127.0.0.1')
  atEnd(t, () => server.close())
  await new Promise((resolve) => server.once('listening', resolve))
  return `http://localhost:${(server.address() as AddressInfo).port}`
}

test('a reader searches while typing, switches languages, copies code and opens the menu on a phone', async (t) => {
  const site = await serveDocs(t)
  const page = await openPage(t)
  const problems: string[] = []
  page.on('console', (message) => message.type() === 'error' && problems.push(message.text()))
  page.on('pageerror', (error) => problems.push(error.message))

  await page.goto(`${site}/docs`)
  assert.equal(await page.locator('.tabs pre:visible').count(), 1)
  await page.getByRole('tab', { name: 'Python' }).click()
  assert.match(await page.locator('.tabs pre:visible').innerText(), /from openai import OpenAI/)
  await page.locator('.tabs figure:visible').getByRole('button', { name: 'Copy' }).click()
  await page.getByRole('button', { name: 'Copied' }).waitFor()
  assert.match(await page.evaluate(() => navigator.clipboard.readText()), /^from openai import OpenAI\n.*\)$/s)

  // The choice of a language lasts.
  await page.goto(`${site}/docs/api/inference#createQuote`)
  assert.match(await page.locator('section:has(#createQuote) .tabs pre:visible').first().innerText(), /urllib\.request/)

  await page.keyboard.press('/')
  // In one piece: the answer to a part of the word would be replaced, and the focus with it, when that to the word arrives.
  await page.keyboard.insertText('withdr')
  const result = page.locator('.results a').first()
  await result.waitFor()
  await page.keyboard.press('ArrowDown')
  await page.keyboard.press('Enter')
  await page.waitForURL(/withdraw/)

  await page.setViewportSize({ width: 390, height: 800 })
  await page.goto(`${site}/docs/guides/billing`)
  const link = page.locator('#navigation').getByRole('link', { name: 'Keys and limits' })
  assert.equal(await link.isVisible(), false)
  await page.getByRole('link', { name: 'Menu' }).click()
  await link.click()
  await page.waitForURL(/guides\/keys/)
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true)
  assert.deepEqual(problems, [])
})

test('every page of the documentation shows its text without a script', async (t) => {
  const site = await serveDocs(t)
  const page = await openPage(t)
  await page.route('**/docs/site.js', (route) => route.abort())
  await page.goto(`${site}/docs`)
  assert.equal(await page.locator('.tabs pre:visible').count(), 3)
})

test('the documentation is accessible in both themes', async (t) => {
  const site = await serveDocs(t)
  const page = await openPage(t)
  for (const path of [
    '/docs',
    '/docs/api',
    '/docs/api/inference',
    '/docs/models',
    '/docs/search?q=hold',
    '/docs/guides/quickstart',
  ]) {
    await page.goto(`${site}${path}`)
    // A theme is a set of colours: in the dark one only these can differ.
    for (const [colorScheme, rules] of [
      ['light', undefined],
      ['dark', ['color-contrast']],
    ] as const) {
      await page.emulateMedia({ colorScheme })
      const found = await findViolations(page, rules)
      assert.deepEqual(
        found.filter(({ isSerious }) => isSerious),
        [],
        `${path} ${colorScheme}`,
      )
    }
  }
})
