import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { Hono } from 'hono'
import { RateLimitedError } from '../../fairness/token-buckets.ts'
import type { HonoBindings } from '../../http/hono.ts'
import { siteOf } from '../../http/origin.ts'
import { isOperatorPath, pagePaths } from '../page-paths.ts'
import { routePages } from '../route-pages.ts'
import { Dashboard } from './dashboard.ts'

const folder = mkdtempSync(join(tmpdir(), 'penny-pages-'))
after(() => rmSync(folder, { recursive: true, force: true }))
mkdirSync(join(folder, 'dist/assets'), { recursive: true })
writeFileSync(join(folder, 'secret.txt'), 'secret')
writeFileSync(join(folder, 'dist/index.html'), '<!doctype html><title>Penny</title>')
writeFileSync(join(folder, 'dist/assets/app-Ab12Cd34.js'), 'plain')
writeFileSync(join(folder, 'dist/assets/app-Ab12Cd34.js.br'), 'brotli')
writeFileSync(join(folder, 'dist/assets/app-Ab12Cd34.js.gz'), 'gzip')

let isTooMany = false
const app = new Hono<HonoBindings>()
app.onError((error, context) => context.json({}, error instanceof RateLimitedError ? 429 : 500))
routePages(app, {
  admitVisitor: async ({ incoming }) => {
    if (isTooMany) throw new RateLimitedError(incoming.socket.remoteAddress!, 50, 1_000)
  },
  site: siteOf('http://localhost:8402'),
  dashboard: Dashboard.load(join(folder, 'dist')),
  docs: { folder: join(folder, 'nothing'), generated: {} },
  trustProxy: false,
  isOperator: async () => false,
  openApi: readFileSync(new URL('../../../openapi.json', import.meta.url), 'utf8'),
})

/** As Node's server would hand it over. */
async function get(path: string, headers: Record<string, string> = {}): Promise<Response> {
  const incoming = { headers: { host: 'localhost:8402', ...headers }, socket: { remoteAddress: '127.0.0.1' } }
  const bindings = { incoming, outgoing: {} } as unknown as HonoBindings['Bindings']
  return app.fetch(new Request(`http://localhost:8402${path}`, { headers }), bindings)
}

test('every page path is the dashboard, whose page loads nothing from elsewhere', async () => {
  for (const path of [...pagePaths, '/requests/req_1', '/r/req_2?x=1', '/keys/', '/keys/a.b']) {
    const page = await get(path, { accept: 'text/html' })
    // An operator's page is the same file, and not there for this visitor.
    assert.equal(page.status, isOperatorPath(path) ? 404 : 200, path)
    assert.match(
      page.headers.get('content-security-policy')!,
      /^default-src 'self'; .*style-src 'self';.*frame-ancestors 'none'$/,
    )
    assert.equal(page.headers.get('cache-control'), 'no-cache')
    assert.equal(page.headers.get('x-content-type-options'), 'nosniff')
  }
})

test('a person at an unknown address gets the not-found page with status 404, a program no page at all', async () => {
  for (const path of ['/nothing', '/requests/req_1/more', '/keys//', '/funds/other', '/r', '/index', '/Keys']) {
    const page = await get(path, { accept: 'text/html' })
    assert.deepEqual([page.status, await page.text()], [404, '<!doctype html><title>Penny</title>'], path)
    const again = await get(path, { accept: 'text/html', 'if-none-match': page.headers.get('etag')! })
    assert.equal(again.status, 404, `${path} with a cached page`)
    assert.deepEqual([(await get(path)).status, await (await get(path)).text()], [404, '404 Not Found'], path)
  }
})

test('a network that requests too many pages is refused every page, file and unknown address', async () => {
  isTooMany = true
  try {
    for (const path of ['/', '/keys', '/assets/app-Ab12Cd34.js', '/openapi.json', '/docs', '/llms.txt', '/nothing']) {
      assert.equal((await get(path, { accept: 'text/html' })).status, 429, path)
    }
  } finally {
    isTooMany = false
  }
})

test('a request of a program is never answered with a page', async () => {
  for (const path of ['/api/nothing', '/v1/nothing', '/api', '/v1', '/assets/gone-12345678.js', '/favicon.ico']) {
    assert.equal((await get(path)).status, 404, path)
  }
  assert.doesNotMatch(await (await get('/v1/nothing', { accept: 'text/html' })).text(), /doctype/)
})

test('files with a hash in their name are cached permanently, and sent compressed to clients that accept it', async () => {
  const path = '/assets/app-Ab12Cd34.js'
  const plain = await get(path)
  assert.deepEqual([await plain.text(), plain.headers.get('content-type')], ['plain', 'text/javascript; charset=utf-8'])
  assert.equal(plain.headers.get('cache-control'), 'public, max-age=31536000, immutable')
  const brotli = await get(path, { 'accept-encoding': 'gzip, br' })
  assert.deepEqual([await brotli.text(), brotli.headers.get('content-encoding')], ['brotli', 'br'])
  assert.equal((await get(path, { 'accept-encoding': 'gzip' })).headers.get('content-encoding'), 'gzip')
  const etag = plain.headers.get('etag')!
  assert.equal((await get(path, { 'if-none-match': etag })).status, 304)
})

test('no name leads out of the folder', async () => {
  for (const path of ['/../secret.txt', '/%2e%2e/secret.txt', '/assets/..%2f..%2fsecret.txt', '//etc/passwd.txt']) {
    assert.notEqual(await (await get(path)).text(), 'secret')
  }
})

test('a page requested at 127.0.0.1 is redirected to localhost; requests of programs are not', async () => {
  const page = await get('/keys?a=1', { host: '127.0.0.1:8402', accept: 'text/html' })
  assert.deepEqual([page.status, page.headers.get('location')], [307, 'http://localhost:8402/keys?a=1'])
  const strange = await get('//evil.example', { host: '127.0.0.1:8402', accept: 'text/html' })
  assert.equal(strange.headers.get('location'), 'http://localhost:8402/evil.example')
  assert.equal((await get('/openapi.json', { host: '127.0.0.1:8402' })).status, 200)
})

test('without a built dashboard a plain page stands in for it', async () => {
  assert.equal(Dashboard.load(join(folder, 'nothing')), undefined)
})
