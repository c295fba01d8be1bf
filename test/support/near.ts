import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('../..', import.meta.url))
/** Where many rooms meet: a change elsewhere does not run all that is tested here. */
const composition = ['src/run', 'src/commands', 'src/main.ts', 'bench', 'test']

/** Every file that git knows or could add. */
export function projectFiles(): readonly string[] {
  return git('ls-files', '--cached', '--others', '--exclude-standard').filter((file) => existsSync(join(root, file)))
}

/** The project's own files that a file imports; types count too, since they name what the file must know. */
export function importsOf(file: string): readonly string[] {
  const text = readFileSync(join(root, file), 'utf8')
  const specifiers = [...text.matchAll(/(?:from |import |import\()'(\.[^']+)'/g)].map((match) => match[1]!)
  return [...new Set(specifiers)].map((specifier) => relative(root, join(root, dirname(file), specifier)))
}

/** What changed since the commit: by default since this branch left origin/main, or else what is not committed. */
export function changedFiles(commit?: string): readonly string[] {
  const base = commit ?? branchPoint()
  return [...git('diff', '--name-only', '--no-renames', base), ...git('ls-files', '--others', '--exclude-standard')]
}

/**
 * The test files of the rooms that the changed files are in, and of the rooms whose files import one of them. A database function is
 * imported by the files that name it, and every migration belongs to the ledger.
 */
export function testsNear(changed: readonly string[]): readonly string[] {
  const code = projectFiles().filter((file) => /\.tsx?$/.test(file))
  const functions = changed.flatMap((file) => /^migrations\/functions\/(\w+)\.sql$/.exec(file)?.[1] ?? [])
  const isChanged = new Set(changed)
  const callers = code.filter((file) => {
    if (importsOf(file).some((target) => isChanged.has(target))) return true
    if (functions.length === 0) return false
    const text = readFileSync(join(root, file), 'utf8')
    return functions.some((name) => text.includes(`${name}(`))
  })
  const rooms = new Set([...changed, ...callers].map(roomOf).filter((room) => !composition.includes(room)))
  const direct = new Set([...changed, ...callers])
  return code.filter((file) => file.endsWith('.test.ts') && (direct.has(file) || rooms.has(roomOf(file))))
}

/** `src/ledger`, `gateway`, `web/src/pages`. */
function roomOf(file: string): string {
  const [top, second, third] = file.split('/')
  if (top === 'migrations') return 'src/ledger'
  if (top === 'src') return `src/${second}`
  return top === 'web' && second === 'src' ? `web/src/${third}` : top!
}

function branchPoint(): string {
  try {
    return git('merge-base', 'HEAD', 'origin/main')[0]!
  } catch {
    // A clone without that remote.
    return 'HEAD'
  }
}

function git(...command: readonly string[]): readonly string[] {
  return execFileSync('git', command, { cwd: root, encoding: 'utf8' })
    .split('\n')
    .filter((line) => line !== '')
}
