import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { Ajv2020 } from 'ajv/dist/2020.js'
import addFormats from 'ajv-formats'
import { Hono } from 'hono'
import { parse } from 'parse5'
import { loadPriceList } from '../../billing/price-list.ts'
import { errorCodes } from '../../errors.ts'
import type { HonoBindings } from '../../http/hono.ts'
import { siteOf } from '../../http/origin.ts'
import { errorsMarkdown, rowCodes } from '../pages/errors.ts'
import { modelsMarkdown } from '../pages/models.ts'
import { exampleBody, exampleResponse, type OpenApi } from './api-reference.ts'
import { Documentation } from './documentation.ts'
import { routeDocs } from './route-docs.ts'

const folder = fileURLToPath(new URL('../../../docs/', import.meta.url))
const documentation = Documentation.load(folder, {
  'errors.md': errorsMarkdown(),
  'models.md': modelsMarkdown(loadPriceList(undefined)),
})
const openApi = readFileSync(new URL('../../../openapi.json', import.meta.url), 'utf8')
const app = new Hono<HonoBindings>()
routeDocs(app, {
  site: siteOf('http://localhost:8402'),
  documentation,
  openApi,
  fontPath: (name) => `/assets/${name}-12345678.woff2`,
})

const get = async (path: string, headers: Record<string, string> = {}) =>
  app.fetch(new Request(`http://localhost:8402${path}`, { headers }))

type Node = { nodeName: string; attrs?: { name: string; value: string }[]; childNodes?: Node[] }

function elements(html: string): readonly Node[] {
  const found: Node[] = []
  const visit = (node: Node) => {
    found.push(node)
    for (const child of node.childNodes ?? []) visit(child)
  }
  visit(parse(html) as unknown as Node)
  return found
}

const attribute = (node: Node, name: string) => node.attrs?.find((candidate) => candidate.name === name)?.value

test('every page of the documentation is served, as a page and as Markdown, and the navigation leads to it', async () => {
  const files = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.md'))
  const listed = new Set(['/docs', ...documentation.navigation.flatMap(({ links }) => links.map(({ path }) => path))])
  for (const file of files) {
    const path = file === 'index.md' ? '/docs' : `/docs/${file.replace(/\.md$/, '')}`
    assert.ok(listed.has(path), `the navigation must lead to ${file}`)
    const page = await get(path)
    assert.deepEqual([page.status, page.headers.get('content-type')], [200, 'text/html; charset=utf-8'], path)
    const markdown = await get(`/docs/${file}`)
    assert.equal(await markdown.text(), readFileSync(`${folder}${file}`, 'utf8'))
    assert.equal(markdown.headers.get('content-type'), 'text/markdown; charset=utf-8')
  }
})

test('every page loads only our own script and style, and has one h1', async () => {
  for (const path of [
    ...documentation.pages.map((page) => page.path),
    '/docs/api',
    '/docs/api/dashboard',
    '/docs/search?q=hold',
    '/docs/nothing',
  ]) {
    const answer = await get(path)
    assert.match(answer.headers.get('content-security-policy')!, /^default-src 'self';.*style-src 'self';/)
    const nodes = elements(await answer.text())
    assert.deepEqual(
      nodes
        .filter(({ nodeName }) => ['script', 'style', 'iframe'].includes(nodeName))
        .map((node) => [node.nodeName, attribute(node, 'src')]),
      [['script', '/docs/site.js']],
      path,
    )
    assert.equal(nodes.filter(({ nodeName }) => nodeName === 'h1').length, 1, path)
    for (const node of nodes) {
      const loaded = node.nodeName === 'a' ? undefined : (attribute(node, 'src') ?? attribute(node, 'href'))
      assert.ok(loaded === undefined || loaded.startsWith('/'), `${path} loads ${loaded}`)
      assert.equal(attribute(node, 'style'), undefined)
    }
  }
})

test('every link on the site leads to a page, and every fragment to a place on it', async () => {
  const pages = new Map<string, ReadonlySet<string | undefined>>()
  const texts = new Map<string, readonly Node[]>()
  for (const path of [...documentation.pages.map((page) => page.path), '/docs/api', '/docs/api/dashboard']) {
    const nodes = elements(await (await get(path)).text())
    texts.set(path, nodes)
    pages.set(path, new Set(nodes.map((node) => attribute(node, 'id'))))
  }
  const elsewhere = new Set(['/', '/openapi.json', '/v1/models', '/llms.txt'])
  const broken = [...texts].flatMap(([path, nodes]) =>
    nodes.flatMap((node) => {
      const target = node.nodeName === 'a' ? attribute(node, 'href') : undefined
      if (target === undefined || /^\w+:/.test(target) || elsewhere.has(target) || target.endsWith('.md')) return []
      const [page = '', fragment] = target.split('#')
      const ids = pages.get(page === '' ? path : page)
      return ids !== undefined && (fragment === undefined || ids.has(fragment)) ? [] : [`${path} → ${target}`]
    }),
  )
  assert.deepEqual(broken, [])
})

test('the doc_url of every error leads to its own place, and so does every code of the request log', async () => {
  const ids = new Set(elements(await (await get('/docs/errors')).text()).map((node) => attribute(node, 'id')))
  assert.deepEqual(
    [...errorCodes, ...rowCodes].filter((code) => !ids.has(code)),
    [],
  )
})

test('repeated words and single letters are not searched for beside others', () => {
  const paths = (query: string) => documentation.search(query).map(({ page, section }) => `${page.path}#${section.id}`)
  assert.deepEqual(paths('a refund b c refund e'), paths('refund'))
  assert.deepEqual(paths('a a a a a a a a'), paths('a'))
  assert.deepEqual(paths('a b c d e f g h'), paths('a'))
})

test('the search finds a page by its words, and an unknown page is a 404 that offers it', async () => {
  const found = await (await get('/docs/search?q=in-flight+cap')).text()
  assert.match(found, /class="hit"/)
  assert.match(await (await get('/docs/search?q=%3Cscript%3E')).text(), /&lt;script&gt;/)
  assert.match(await (await get('/docs/search?q=zzyzx')).text(), /No matches/)
  const missing = await get('/docs/no-such-page')
  assert.equal(missing.status, 404)
  assert.match(await missing.text(), /role="search"/)
})

test('guides for customers rank above runbooks and decisions that use the same words', () => {
  const rank = (query: string, folder: string) =>
    documentation.search(query).findIndex(({ page }) => page.path.startsWith(`/docs/${folder}`))
  assert.equal(documentation.search('refund')[0]!.page.path, '/docs/guides/billing')
  for (const [query, guide] of [
    ['withdraw', 'guides/funds'],
    ['limit', 'guides/keys'],
    ['cancel', 'guides/streaming'],
  ] as const) {
    const place = rank(query, guide)
    const rivals = [rank(query, 'runbooks'), rank(query, 'decisions')].filter((at) => at >= 0)
    assert.ok(place >= 0 && rivals.every((at) => place < at), `${query}: ${place} against ${rivals}`)
  }
})

test('language models get the index, the whole, and any page as Markdown', async () => {
  const index = await (await get('/llms.txt')).text()
  assert.match(index, /^# Penny Router\n\n> /)
  assert.match(index, /- \[Quickstart\]\(http:\/\/localhost:8402\/docs\/guides\/quickstart\.md\): /)
  const whole = await (await get('/llms-full.txt')).text()
  for (const { markdown, path } of documentation.pages) assert.ok(whole.includes(markdown.trim()), path)
  const negotiated = await get('/docs/guides/billing', { accept: 'text/markdown' })
  assert.equal(negotiated.headers.get('content-type'), 'text/markdown; charset=utf-8')
})

test('the reference has every route of the OpenAPI document, each with a request and a response', async () => {
  const html = `${await (await get('/docs/api')).text()}${await (await get('/docs/api/dashboard')).text()}`
  const ids = new Set(elements(html).map((node) => attribute(node, 'id')))
  const { paths } = JSON.parse(openApi) as OpenApi
  for (const [path, methods] of Object.entries(paths)) {
    assert.ok(html.includes(`<code>${path}</code>`), path)
    for (const { operationId } of Object.values(methods))
      for (const id of [operationId, `${operationId}-request`, `${operationId}-response`]) assert.ok(ids.has(id), id)
  }
})

test('the reference names every credential that a route takes, and its sample sends one that a program has', async () => {
  const html = `${await (await get('/docs/api')).text()}${await (await get('/docs/api/dashboard')).text()}`
  const { paths } = JSON.parse(openApi) as OpenApi
  const routes = Object.values(paths).flatMap((methods) => Object.values(methods))
  for (const { operationId, security = [] } of routes) {
    const [, access = ''] = new RegExp(`<h2 id="${operationId}">.*?(Public|Needs [^<]*?)\\.</p>`, 's').exec(html) ?? []
    const schemes = security.flatMap((way) => Object.keys(way)).filter((name) => name !== 'localSession')
    const named = access === 'Public' ? [] : access.replace('Needs ', '').split(' or ')
    assert.equal(new Set(named).size, schemes.length, `${operationId}: ${access}`)
  }
  const text = html.replaceAll(/<[^>]+>/g, '')
  for (const header of ['PAYMENT-SIGNATURE: $X402_PAYMENT', 'Authorization: Bearer $PENNY_MANAGEMENT_KEY'])
    assert.ok(text.includes(header), header)
})

test('every example of the reference is one that its schema allows', () => {
  const document = JSON.parse(openApi) as OpenApi
  const ajv = new Ajv2020({ strict: false, allErrors: true })
  addFormats.default(ajv)
  ajv.addSchema({ ...document, $id: 'openapi' })
  const wrong: string[] = []
  const check = (schema: object | undefined, example: unknown, place: string) => {
    if (schema === undefined) return
    const absolute = JSON.parse(JSON.stringify(schema).replaceAll('"#/components', '"openapi#/components'))
    const validate = ajv.compile(absolute)
    if (!validate(example)) wrong.push(`${place}: ${ajv.errorsText(validate.errors)}`)
  }
  for (const methods of Object.values(document.paths))
    for (const operation of Object.values(methods)) {
      const { operationId, requestBody, responses } = operation
      const answer = Object.entries(responses).find(([status]) => status.startsWith('2'))![1]
      check(
        requestBody?.content?.['application/json']?.schema,
        exampleBody(operation, document.components.schemas),
        `${operationId} request`,
      )
      check(
        answer.content?.['application/json']?.schema,
        exampleResponse(operation, document.components.schemas),
        `${operationId} response`,
      )
    }
  assert.deepEqual(wrong, [])
})

test('results while typing: the beginning of a word and a wrong letter are enough, and excerpts are prose', async () => {
  const search = async (query: string) => {
    const response = await get(`/docs/search.json?q=${encodeURIComponent(query)}`)
    return (await response.json()) as { hits: { title: string; path: string; excerpt: string }[] }
  }
  assert.ok((await search('withdr')).hits.some(({ path }) => path.startsWith('/docs/operations/withdraw#')))
  assert.ok((await search('idempotancy')).hits.some(({ path }) => path.startsWith('/docs/operations/retry#')))
  assert.deepEqual((await search('')).hits, [])
  assert.deepEqual((await search('zzyzx')).hits, [])
  for (const { excerpt } of (await search('charged')).hits) assert.doesNotMatch(excerpt, /\||```/)
})

test('the price page has the price of every model and of a search', async () => {
  const html = await (await get('/docs/models')).text()
  const { models } = loadPriceList(undefined)
  for (const id of models.keys()) assert.ok(html.includes(`<code>${id}</code>`), id)
  assert.match(html, /0\.00875 USDC/)
})
