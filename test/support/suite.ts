import { globSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'

// Which test files there are, what each costs, and which of them share a process. Nothing here is kept by hand: the costs are measured
// (`npm run test:measure`), and what a file needs of the runner is read from the file.

const root = fileURLToPath(new URL('../..', import.meta.url))
const durationsFile = join(root, 'test/durations.json')
const testFiles = ['src', 'gateway', 'sandbox', 'web/src', 'test'].map((folder) => `${folder}/**/*.test.ts`)

/** `npm test` has no time for files above this: of those it runs the promises of `docs/promises.md` alone. */
const cheapMsMax = 1_000
/** A file above this has a process of its own. */
const sharedMsMax = 8_000
/** Short enough that no core is idle while the last group ends. */
const groupMsMax = 12_000
const groupFilesMax = 12

/** Timers, signals, the environment and the memory belong to the whole process. */
const changesProcess = /\bmock\.timers\b|\bprocess\.(?:env\.\w+ =|emit\(|memoryUsage\b)|\bdelete process\.env\b/
/** The parameter list of `examples.ts` says how much more `npm run test:full` does. */
const isLongerInFull = /\bexampleCount\(/

/**
 * CPU milliseconds of each file that is not cheap: of its process and of those that it started, without the shared PostgreSQL. Files that
 * share a process share what loading took.
 */
const costs = JSON.parse(readFileSync(durationsFile, 'utf8')) as Readonly<Record<string, number>>

/** They read files instead of behaviour: `npm run check` runs them. */
export const linters = ['test/lint/*.test.ts']

/** Paths from the root. A pattern without a file is a mistake. */
export function findTests(patterns: readonly string[] = testFiles): readonly string[] {
  const files = patterns.flatMap((pattern) => {
    const found = globSync(pattern, { cwd: root, exclude: ['**/node_modules/**'] })
    if (found.length === 0) throw new Error(`No test file matches ${pattern}`)
    return found.map((file) => relative(root, resolve(root, file)))
  })
  return [...new Set(files)]
}

/** `short` is `npm test`, which runs `promisedTests` too; `full` is the files that it does not run as a whole; `all` is both. */
export type Form = 'short' | 'full' | 'all'

export function testsOf(form: Form): readonly string[] {
  const isLinter = new Set(findTests(linters))
  const files = findTests().filter((file) => !isLinter.has(file))
  if (form === 'all') return files
  // A drill takes minutes where the servers that it needs are installed, and nothing elsewhere: its measured cost says little.
  const isShort = (file: string) => !file.startsWith('test/drills/') && costOf(file) <= cheapMsMax
  return files.filter((file) => (form === 'short' ? isShort(file) : !isShort(file) || isLongerInFull.test(read(file))))
}

/** The tests of `docs/promises.md` in files that are too long for `npm test`. */
export function promisedTests(): Selection {
  return selectPromised((file) => costOf(file) > cheapMsMax)
}

/** Those of them that `npm run test:full` would only repeat. */
export function repeatedTests(): Selection {
  return selectPromised((file) => costOf(file) > cheapMsMax && !isLongerInFull.test(read(file)))
}

/** Files, and the pattern of the names of tests in them. */
export type Selection = { readonly files: readonly string[]; readonly pattern: string }

function selectPromised(isMeant: (file: string) => boolean): Selection {
  const [files, names] = [new Set<string>(), new Set<string>()]
  for (const row of read('docs/promises.md').match(/^\| .*\.test\.ts`.*/gm)!) {
    let file = ''
    for (const [, path = file, name] of row.matchAll(/`([\w./-]+\.test\.ts)`|"([^"]+)"/g)) {
      file = path
      if (name === undefined || !isMeant(file)) continue
      files.add(file)
      names.add(patternOf(name))
    }
  }
  return { files: [...files], pattern: [...names].join('|') }
}

/** The page has the name as the source has it, or a part of it. */
function patternOf(name: string): string {
  return name
    .split(/\$\{.*?\}|…/)
    .map((part) => RegExp.escape(part))
    .join('.*')
}

/** The dearest first, so that no core is idle while the last one ends. Files of one area need much the same modules. */
export function group(files: readonly string[], form: Form): readonly (readonly string[])[] {
  const isLonger = (file: string) => form !== 'short' && isLongerInFull.test(read(file))
  const groups: Group[] = []
  const open = new Map<string, Group>()
  for (const file of files.toSorted(byCost)) {
    // Only the short form is measured; the longer ones start first.
    const cpuMs = isLonger(file) ? groupMsMax + costOf(file) : costOf(file)
    const area = file.startsWith('test/') ? dirname(file) : file.split('/')[0]!
    const isAlone = cpuMs > sharedMsMax || changesProcess.test(read(file))
    const last = isAlone ? undefined : open.get(area)
    if (last !== undefined && last.files.length < groupFilesMax && last.cpuMs + cpuMs <= groupMsMax) {
      last.files.push(file)
      last.cpuMs += cpuMs
      continue
    }
    const next = { files: [file], cpuMs }
    groups.push(next)
    if (!isAlone) open.set(area, next)
  }
  return groups.toSorted((first, second) => second.cpuMs - first.cpuMs).map(({ files }) => files)
}

type Group = { readonly files: string[]; cpuMs: number }

/** What is not measured yet is new: it runs in `npm test`. */
function costOf(file: string): number {
  return costs[file] ?? cheapMsMax
}

/** Files that are gone or cheap lose their entry; the others keep what was measured last. */
export function writeCosts(measured: ReadonlyMap<string, number>): void {
  const all = { ...costs, ...Object.fromEntries(measured) }
  const entries = findTests()
    .toSorted()
    .filter((file) => (all[file] ?? 0) > cheapMsMax)
    .map((file) => [file, all[file]])
  writeFileSync(durationsFile, `${JSON.stringify(Object.fromEntries(entries), null, 2)}\n`)
}

function byCost(first: string, second: string): number {
  return costOf(second) - costOf(first) || (first < second ? -1 : 1)
}

function read(file: string): string {
  return readFileSync(join(root, file), 'utf8')
}
