import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { startSearchServer } from '../../sandbox/search/server.ts'
import { FetchFailedError } from './web-fetch.ts'
import { SearchFailedError } from './web-search.ts'
import { createWebTools, type WebToolsOptions } from './web-tools.ts'

const never = new AbortController().signal
const root = fileURLToPath(new URL('../..', import.meta.url))
const sandbox = await startSearchServer({ host: '127.0.0.1', port: 0, root })
const sandboxTools = webTools({ sandboxSearchUrl: sandbox.url })
after(async () => {
  await sandboxTools.close()
  await sandbox.close()
})

test('in the sandbox a question is searched, and what is found can be read', async () => {
  const [best] = await sandboxTools.search!.search('how much is held for a request', never, 'a')
  assert.ok(best!.url.startsWith('https://docs.penny.test/'))
  const page = await sandboxTools.fetch.fetch(best!.url, never, 'a')
  assert.equal(page.url, best!.url)
  assert.match(page.text, /^# /)
  assert.ok(!page.text.includes('Served by the sandbox'))
})

test('tables, code and links of the documentation survive', async () => {
  const { text } = await sandboxTools.fetch.fetch('https://docs.penny.test/ARCHITECTURE', never, 'a')
  assert.match(text, /\| place \| subject \|\n\| --- \| --- \|/)
  assert.match(text, /\[retry\]\(https:\/\/docs\.penny\.test\/docs\/operations\/retry\)/)
  const { text: source } = await sandboxTools.fetch.fetch('https://docs.penny.test/docs/operations/hold.md', never, 'a')
  assert.match(source, /^# Hold/)
})

test('the sandbox opens no other way: neither its own address nor pages that are not there', async () => {
  for (const url of [
    sandbox.url,
    `${sandbox.url}/search?q=x&format=json`,
    'http://docs.penny.test/',
    'https://docs.penny.test/../../package.json',
    'https://docs.penny.test/%2e%2e/search?q=hold&format=json',
    'https://other.penny.test/',
  ]) {
    await assert.rejects(sandboxTools.fetch.fetch(url, never, 'a'), FetchFailedError, url)
  }
})

test('without a provider and a sandbox there is no search, and sandbox pages cannot be read', async () => {
  const tools = webTools({})
  assert.equal(tools.search, undefined)
  await assert.rejects(tools.fetch.fetch('https://docs.penny.test/', never, 'a'), FetchFailedError)
  await tools.close()
})

test('configured providers are called in their order', async () => {
  const failures: string[] = []
  const tools = webTools({
    config: {
      search: [
        { provider: 'searxng', credential: 'http://127.0.0.1:9' },
        { provider: 'searxng', credential: sandbox.url },
      ],
    },
    onProviderFailure: (error) => failures.push(error.message),
  })
  assert.ok((await tools.search!.search('hold', never, 'a')).length > 0)
  assert.equal(failures.length, 1)
  await tools.close()
})

test('a search after the sandbox has gone fails, and says so to the model', async () => {
  const gone = await startSearchServer({ host: '127.0.0.1', port: 0, root })
  const tools = webTools({ sandboxSearchUrl: gone.url })
  await gone.close()
  await assert.rejects(tools.search!.search('hold', never, 'a'), SearchFailedError)
  await assert.rejects(tools.fetch.fetch('https://docs.penny.test/', never, 'a'), FetchFailedError)
  await tools.close()
})

function webTools(options: Partial<WebToolsOptions>) {
  return createWebTools({
    config: { search: undefined },
    sandboxSearchUrl: undefined,
    publicUrl: 'http://localhost:8402',
    version: 'test',
    onProviderFailure: () => {},
    ...options,
  })
}
