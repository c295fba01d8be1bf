import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import fc from 'fast-check'
import { isAllowed, parseRobots } from './robots-rules.ts'

const file = `
# all robots
User-agent: *
Disallow: /private
Allow: /private/open
Disallow: /*.zip$
Disallow: /search?*q=

User-agent: OtherBot
User-Agent: pennyrouter
Disallow: /not-for-penny
Sitemap: https://site.example/map.xml

User-agent: Greedy
Disallow: /
`

test('the group that names the robot counts, and the general one where none does', () => {
  const penny = parseRobots(file, 'PennyRouter')
  assert.deepEqual(
    [isAllowed(penny, '/private/x'), isAllowed(penny, '/not-for-penny/1'), isAllowed(penny, '/')],
    [true, false, true],
  )
  assert.equal(isAllowed(parseRobots(file, 'Greedy'), '/'), false)
})

test('the longest rule that matches decides', () => {
  const rules = parseRobots(file, 'Somebody')
  const paths = {
    '/': true,
    '/private': false,
    '/private/open/x': true,
    '/a/b.zip': false,
    '/a/b.zip?c': true,
    '/search?a=1&q=2': false,
    '/privat': true,
  }
  for (const [path, allowed] of Object.entries(paths)) assert.equal(isAllowed(rules, path), allowed, path)
})

test('a file without disallowed paths allows everything', () => {
  assert.equal(
    isAllowed(parseRobots('User-agent: PennyRouter\nDisallow:\n\nUser-agent: *\nDisallow: /', 'PennyRouter'), '/x'),
    true,
  )
  assert.equal(isAllowed(parseRobots('', 'PennyRouter'), '/x'), true)
  assert.equal(isAllowed(parseRobots('<html>not found</html>', 'PennyRouter'), '/x'), true)
})

test('a pattern with stars matches what the same regular expression matches', () => {
  const letters = fc.string({ unit: fc.constantFrom('a', 'b', '/'), maxLength: 8 })
  const pattern = fc.tuple(fc.array(letters, { minLength: 1, maxLength: 4 }), fc.boolean())
  fc.assert(
    fc.property(pattern, letters, ([parts, anchored], path) => {
      const expression = new RegExp(`^/${parts.join('.*')}${anchored ? '$' : ''}`)
      const rules = parseRobots(`User-agent: *\nDisallow: /${parts.join('*')}${anchored ? '$' : ''}`, 'x')
      return isAllowed(rules, `/${path}`) !== expression.test(`/${path}`)
    }),
    { numRuns: 1_000 },
  )
})

test('a robots.txt designed to be slow is matched quickly', () => {
  const rules = parseRobots(`User-agent: *\n${`Disallow: /${'*a'.repeat(120)}b\n`.repeat(500)}`, 'x')
  assert.ok(rules.length > 100 && rules.length < 200)
  assert.equal(isAllowed(rules, `/${'a'.repeat(2_000)}`), true)
})

test('a group may name several robots, and a robot several groups', () => {
  const groups =
    'User-agent: a\nUser-agent: *\nDisallow: /1\n\nUser-agent: A\nDisallow: /2\n\nUser-agent: b\nDisallow: /3'
  const forbidden = (robot: string) => parseRobots(groups, robot).map(({ pattern }) => pattern)
  assert.deepEqual([forbidden('a'), forbidden('b'), forbidden('c')], [['/1', '/2'], ['/3'], ['/1']])
})

test('as many rules are kept as are matched quickly, fewer of those with stars, and none that is very long', () => {
  const many = parseRobots(
    `User-agent: *\n${Array.from({ length: 15_000 }, (_, n) => `Disallow: /${n % 10}`).join('\n')}`,
    'x',
  )
  assert.equal(many.length, 1_000)
  const stars = `${'Disallow: /*a\n'.repeat(1_000)}Disallow: /b`
  const kept = parseRobots(`User-agent: *\n${stars}`, 'x')
  assert.deepEqual([kept.length, kept.at(-1)], [201, { allow: false, pattern: '/b' }])
  const long = parseRobots(
    `User-agent: *\nDisallow: /${'a'.repeat(2_000)}\nDisallow: /*${'a'.repeat(255)}\nDisallow: /b`,
    'x',
  )
  assert.deepEqual(long, [{ allow: false, pattern: '/b' }])
})

setFlagsFromString('--expose-gc')
const collectGarbage = runInNewContext('gc') as () => void

test('the rules of a robots.txt do not keep the file in memory', () => {
  const heapBytes = () => {
    collectGarbage()
    return process.memoryUsage().heapUsed
  }
  const before = heapBytes()
  const kept = Array.from({ length: 100 }, (_, host) =>
    parseRobots(`User-agent: *\nDisallow: /not-for-robots/${host}\n# ${'x'.repeat(500_000)}`, 'x'),
  )
  assert.ok(heapBytes() - before < 10_000_000)
  assert.equal(kept.flat().length, 100)
})
