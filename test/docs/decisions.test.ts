import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'

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
  for (const [table, packages] of [
    [atRunTime, { ...dependencies, ...optionalDependencies }],
    [forDevelopment, { ...devDependencies }],
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
