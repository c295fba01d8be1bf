import { spawnSync } from 'node:child_process'
import { chmodSync, existsSync, globSync, mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

/** A program of Debian unstable, unpacked beside the system with the libraries that it needs. Nothing is installed. */
export type UnpackedEngine = {
  readonly program: string
  /** The program's package and those of all its libraries, the C library included. */
  readonly packages: readonly string[]
  /** Below /usr/lib/<machine>. */
  readonly libraryFolders: readonly string[]
  /** The variable that names a plugin of the program, and its path below /usr/lib/<machine>. */
  readonly plugin: readonly [variable: string, path: string]
}

const timeoutMs = 180_000

/** Where the program's start script is. */
export function folderOf({ program }: UnpackedEngine): string {
  return fileURLToPath(new URL(`../../node_modules/.cache/penny/${program}`, import.meta.url))
}

/** Downloads and unpacks what is missing: 14 MB, and apt's list of 11 MB. apt checks the signatures. @returns why it could not */
export function unpack(engine: UnpackedEngine): string | undefined {
  const folder = folderOf(engine)
  if (existsSync(join(folder, engine.program))) return undefined
  if (!existsSync('/usr/bin/apt-get')) return 'this machine has no apt-get'
  rmSync(folder, { recursive: true, force: true })
  const part = `${folder}.part`
  rmSync(part, { recursive: true, force: true })
  for (const name of ['lists/partial', 'cache/archives/partial', 'packages', 'root'])
    mkdirSync(join(part, name), { recursive: true })
  const archive = debianArchive()
  if (archive === undefined) return 'apt-get knows no archive of Debian'
  writeFileSync(join(part, 'sources.list'), `deb ${archive} unstable main\n`)
  const options = [
    `Dir::Etc::SourceList=${part}/sources.list`,
    'Dir::Etc::SourceParts=/dev/null',
    `Dir::State::Lists=${part}/lists`,
    `Dir::Cache=${part}/cache`,
    'APT::Sandbox::User=root',
    'Acquire::Languages=none',
  ].flatMap((option) => ['-o', option])
  const run = (program: string, args: readonly string[]) =>
    spawnSync(program, args, { cwd: join(part, 'packages'), stdio: 'ignore', timeout: timeoutMs }).status === 0
  if (!run('apt-get', [...options, 'update', '-q'])) return 'apt-get could not read the list of Debian unstable'
  if (!run('apt-get', [...options, 'download', '-q', ...engine.packages]))
    return `apt-get could not download ${engine.packages[0]} of Debian unstable`
  for (const file of globSync('*.deb', { cwd: join(part, 'packages') }))
    if (!run('dpkg-deb', ['-x', file, join(part, 'root')])) return `dpkg-deb could not unpack ${file}`
  const [loader] = globSync('usr/lib/*/ld-linux*.so.*', { cwd: join(part, 'root') })
  if (loader === undefined) return 'the packages have no loader for this machine'
  for (const name of ['lists', 'cache', 'packages']) rmSync(join(part, name), { recursive: true })
  writeFileSync(join(part, engine.program), startScript(engine, loader))
  chmodSync(join(part, engine.program), 0o755)
  renameSync(part, folder)
  return undefined
}

/** The archive that this machine uses. */
function debianArchive(): string | undefined {
  const { stdout } = spawnSync('apt-get', ['indextargets', '--format', '$(SITE)', 'Created-By: Packages'], {
    encoding: 'utf8',
  })
  return stdout.split('\n').find((site) => /\/debian\/?$/.test(site))
}

/** By its own loader, with its own C library: the system's is older. */
function startScript({ program, libraryFolders, plugin: [variable, path] }: UnpackedEngine, loader: string): string {
  const folder = loader.slice(0, loader.lastIndexOf('/'))
  const libraries = ['', ...libraryFolders].map((name) => `"$root/${folder}/${name}"`).join(':')
  return `#!/bin/sh
root="$(dirname "$0")/root"
export ${variable}="$root/${folder}/${path}"
exec "$root/${loader}" --library-path ${libraries} "$root/usr/bin/${program}" "$@"
`
}
