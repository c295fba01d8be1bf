import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { apiRates } from '../../src/api/gate.ts'
import { errorCodes } from '../../src/errors.ts'
import { answerOf } from '../../src/http/error-response.ts'
import { unpaidRates } from '../../src/http/unpaid-requests.ts'

const root = new URL('../../', import.meta.url)
const read = (file: string) => readFileSync(new URL(file, root), 'utf8')

type Packages = Readonly<Record<string, string>>
type Manifest = Readonly<Record<'dependencies' | 'optionalDependencies' | 'devDependencies', Packages | undefined>>

const page = read('docs/decisions/0002-dependencies.md')
const [atRunTime = '', forDevelopment = ''] = page.split('For development:')

/** The names in the first column of a table. */
function namesIn(table: string): string[] {
  const cells = [...table.matchAll(/^\| (`.*?) \|/gm)].map((match) => match[1]!)
  return cells.flatMap((cell) => [...cell.matchAll(/`([^`]+)`/g)].map((match) => match[1]!))
}

/** `@x402/*` stands for each of them. */
function stands(name: string): (packageName: string) => boolean {
  return (packageName) => (name.endsWith('/*') ? packageName.startsWith(name.slice(0, -1)) : packageName === name)
}

test('every dependency has its reason, once, and no reason has lost its dependency', () => {
  const { dependencies, optionalDependencies, devDependencies } = JSON.parse(read('package.json')) as Manifest
  const { devDependencies: generators } = JSON.parse(read('test/openapi/package.json')) as Manifest
  for (const [table, packages] of [
    [atRunTime, { ...dependencies, ...optionalDependencies }],
    [forDevelopment, { ...devDependencies, ...generators }],
  ] as const) {
    const [names, installed] = [namesIn(table), Object.keys(packages)]
    for (const name of installed) assert.equal(names.filter((candidate) => stands(candidate)(name)).length, 1, name)
    for (const name of names) assert.ok(installed.some(stands(name)), `${name} is not in package.json`)
  }
})

test('the dashboard’s dependencies have theirs on its own page', () => {
  const { dependencies } = JSON.parse(read('web/package.json')) as Manifest
  const names = namesIn(read('docs/decisions/0009-dashboard.md'))
  assert.deepEqual(
    Object.keys(dependencies!).filter((name) => !names.includes(name)),
    [],
  )
})

// What the specification's table of errors has; a new code is explained on the page.
const specified = `invalid_json invalid_value missing_required_parameter unsupported_parameter unsupported_content
  context_length_exceeded web_search_unavailable invalid_api_key api_key_expired api_key_revoked key_limit_exceeded
  insufficient_balance model_not_found request_not_found unknown_url method_not_allowed request_timeout body_too_large
  unsupported_media_type idempotency_mismatch in_flight_cap quote_exceeds_cap upstream_error overloaded settlement_delayed
  ledger_frozen upstream_timeout internal_error`.split(/\s+/)

test('every error code beyond the specification’s is explained, with the status that it has', () => {
  const rates = read('docs/limits.md')
  const explained = [...rates.matchAll(/^\| `(\w+)` \| (\d+) \|/gm)].map(([, code, status]) => [code, Number(status)])
  const extra = errorCodes.filter((code) => !specified.includes(code)).map((code) => [code, answerOf(code).status])
  assert.deepEqual(explained.sort(), extra.sort())
})

test('the rates of the dashboard’s API are those that the page names', () => {
  assert.deepEqual(
    ratesNamed((row) => !isUnpaid(row) && !isOfAnyVisitor(row)),
    Object.values(apiRates),
  )
})

test('so are the rates of refused requests and quotes', () => {
  assert.deepEqual(ratesNamed(isUnpaid), Object.values(unpaidRates))
})

const isUnpaid = (row: string) => row.includes('/v1') || row.includes('refused')
const isOfAnyVisitor = (row: string) => row.includes('public pages') || row.includes('connections')

/** Per second and at once, of the rows of the page's table. */
function ratesNamed(isMeant: (row: string) => boolean): { burstMax: number; perSecond: number }[] {
  const rows = read('docs/limits.md').matchAll(/^.*\| (\d+) a second \| (\d+) \|$/gm)
  return [...rows]
    .filter(([row]) => isMeant(row))
    .map(([, rate, burst]) => ({ burstMax: Number(burst), perSecond: Number(rate) }))
}
