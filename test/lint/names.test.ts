import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { accountEvents } from '../../src/db/account-log.ts'
import { eventTypes } from '../../src/db/write-event.ts'
import {
  chatParameters,
  contentPartsMax,
  messagesMax,
  refusedParameters,
  toolCallsMax,
  toolsMax,
} from '../../src/inference/chat-parameters.ts'
import { parseJsonBody } from '../../src/inference/json-body.ts'
import { refillAlarms } from '../../src/settlement/refill-gas.ts'
import { solvencyInvariant } from '../../src/settlement/solvency.ts'

// A name in the documentation is a promise that the reader will find it.

const root = fileURLToPath(new URL('../../', import.meta.url))
const read = (file: string) => readFileSync(new URL(file, `file://${root}`), 'utf8')
const files = execFileSync('git', ['ls-files'], { cwd: root, encoding: 'utf8' }).trim().split('\n')
const pages = files.filter((file) => file.endsWith('.md') && file !== 'CHANGELOG.md')

/** What stands between backticks, with the page it stands on. */
function quoted(page: string): readonly string[] {
  return [...read(page).matchAll(/`([^`\n]+)`/g)].map((match) => match[1]!)
}

test('every file and folder that a page names is there', () => {
  // Made by the operator, or by the build.
  const made = ['deploy/penny.env', 'deploy/secrets', 'web/dist']
  const ofOurs = /^(src|test|bench|bin|deploy|docs|contracts|migrations|web)\/[\w./-]+$|^[\w/-]+\.(ts|tsx|mjs|sql|sol)$/
  const isThere = (name: string) =>
    made.includes(name) ||
    files.some((file) => file === name || file.endsWith(`/${name}`) || `/${file}`.includes(`/${name}/`)) ||
    // A migration by its number.
    files.some((file) => /\/\d{4}$/.test(name) && file.startsWith(`${name}_`))
  const wrong = pages.flatMap((page) =>
    quoted(page)
      .filter((name) => ofOurs.test(name) && !isThere(name.replace(/\/$/, '')))
      .map((name) => `${page}: ${name}`),
  )
  assert.deepEqual(wrong, [])
})

// At night the line of the log is searched for in the runbooks, and theirs in the log. Read from the source: most of these lines are
// written only when something outside is broken in a way of its own.
test('every line of the log that a runbook names is one that is written', () => {
  const sources = files.filter((file) => /^(src|bin)\/.*\.(ts|mjs)$/.test(file) && !file.endsWith('.test.ts'))
  // One machine writes the lines about every kind of transfer.
  const text = sources
    .map(read)
    .join('\n')
    .replaceAll(/\$\{kind\}/g, 'transfer')
  const isWritten = (line: string) =>
    text.includes(line) || text.includes(line.replace(/withdrawal|refund|payout/, 'transfer'))
  const lines = pages
    .filter((page) => page.startsWith('docs/runbooks/'))
    .flatMap((page) => quoted(page).map((line) => ({ page, line })))
    .filter(({ line }) => /^[a-z]+( [a-z’]+){2,}$/.test(line))
  assert.ok(lines.length >= 8)
  assert.deepEqual(
    lines.filter(({ line }) => !isWritten(line)),
    [],
  )
})

test('the tests that the pages of faults and promises name are there', () => {
  const tests = files.filter((file) => file.endsWith('.test.ts'))
  const lines = ['faults', 'promises'].flatMap((page) => read(`docs/${page}.md`).match(/^\| .*\.test\.ts`.*/gm)!)
  const wrong: string[] = []
  for (const line of lines) {
    let sources: readonly string[] = []
    for (const [, name, title] of line.matchAll(/`([\w./-]+\.test\.ts)`|"([^"]+)"/g)) {
      if (name !== undefined) sources = tests.filter((file) => file === name || file.endsWith(`/${name}`)).map(read)
      if (name !== undefined && sources.length === 0) wrong.push(name)
      const parts = title?.split(/ ?… ?|…: ?/).filter((part) => part !== '') ?? []
      if (!sources.some((source) => parts.every((part) => source.includes(part)))) wrong.push(`${title}`)
    }
  }
  assert.deepEqual(wrong, [])
})

test('links of the README lead somewhere', () => {
  const targets = [...read('README.md').matchAll(/\]\((?!\w+:|#)([^()\s#]+)/g)].map((match) => match[1]!)
  assert.deepEqual(
    targets.filter((target) => !existsSync(join(root, target))),
    [],
  )
})

test('a decision has in its title the number of its file', () => {
  for (const page of pages.filter((file) => file.startsWith('docs/decisions/')))
    assert.match(read(page), new RegExp(`^# ${Number(page.slice('docs/decisions/'.length, -1).slice(0, 4))}\\. `), page)
})

test('the page of the log has every event of an account', () => {
  const page = read('docs/observability.md')
  assert.deepEqual(
    accountEvents.filter((event) => !page.includes(`\`${event}\``)),
    [],
  )
})

test('the page of webhooks has every type of event', () => {
  const page = read('docs/webhooks.md')
  assert.deepEqual(
    eventTypes.filter((type) => !page.includes(`\`${type}\``)),
    [],
  )
})

test('the page for clients that move from OpenAI has every parameter of a completion', () => {
  const moving = read('docs/guides/moving.md')
  assert.deepEqual(
    [...Object.keys(chatParameters), ...refusedParameters].filter((name) => !moving.includes(`\`${name}\``)),
    [],
  )
})

// Runbooks are read at night: what the service says must be what they say it says.
test('the runbooks have the number of the invariant that a chain shortfall violates', () => {
  const invariant = solvencyInvariant
  assert.match(read('ARCHITECTURE.md'), new RegExp(`^\\| ${invariant} \\| the chain matches the ledger`, 'm'))
  assert.match(read('docs/runbooks/ledger-frozen.md'), new RegExp(`^\\| \`${invariant}\` \\| the chain has less`, 'm'))
  assert.match(read('docs/runbooks/reconcile-mismatch.md'), new RegExp(`the ledger is frozen with \`${invariant}\``))
})

test('the runbook of the relayer has every outcome of a refill that the service logs', () => {
  const runbook = read('docs/runbooks/lost-relayer-gas.md')
  for (const alarm of Object.values(refillAlarms))
    assert.ok(runbook.includes(`\`${alarm}\``), `${alarm} is not in the runbook`)
})

test('the page for clients that move from OpenAI names each size limit of a request', () => {
  const moving = read('docs/guides/moving.md')
  const tooMany = [`{"a":[${'0,'.repeat(200_000)}0]}`, `{${'"a":0,'.repeat(2_000)}"a":0}`]
  const refused = tooMany.map((body) => {
    try {
      return parseJsonBody(Buffer.from(body))
    } catch (error) {
      return Number(/the limit is (\d+)/.exec(String(error))?.[1])
    }
  })
  const limits = [messagesMax, contentPartsMax, toolsMax, toolCallsMax, ...refused]
  assert.deepEqual(
    limits.filter((limit) => !moving.includes(`| ${limit.toLocaleString('en')}`)),
    [],
  )
})
