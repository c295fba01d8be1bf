import { execFileSync, spawnSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { delimiter, join } from 'node:path'

/** A program of somebody else that the service runs beside: a load balancer, a database, an init system. */
export type Engine = {
  readonly name: string
  /** The program's file name, looked for on the path, then in the folders. */
  readonly program: string
  readonly folders?: readonly string[]
  /** Debian's package. */
  readonly package: string
  /** The flag that prints the program's version; for a library, the path of the file that names it. */
  readonly version: string | ((path: string) => string)
}

export type FoundEngine = { readonly path: string; readonly version: string }

const installMsMax = 180_000
const systemFolders = ['/usr/sbin', '/usr/bin', '/lib/systemd']

/** The program, or one line that says why there is none. With `mayInstall` a missing one is installed from Debian where that is possible. */
export function findEngine(engine: Engine, { mayInstall }: { readonly mayInstall: boolean }): FoundEngine | string {
  const path = locate(engine)
  if (path !== undefined) return { path, version: versionOf(path, engine) }
  if (!mayInstall) return `${engine.name} is not installed; npm run drill installs it`
  const problem = install(engine)
  if (problem !== undefined) return problem
  const installed = locate(engine)
  if (installed === undefined) return `${engine.package} has no ${engine.program}`
  return { path: installed, version: versionOf(installed, engine) }
}

function locate({ program, folders = [] }: Engine): string | undefined {
  const places = [...(process.env.PATH ?? '').split(delimiter), ...systemFolders, ...folders]
  return places.map((place) => join(place, program)).find((path) => existsSync(path))
}

function install(engine: Engine): string | undefined {
  if (process.getuid?.() !== 0) return `${engine.name} is not installed, and only root can install it`
  if (!existsSync('/usr/bin/apt-get')) return `${engine.name} is not installed, and this machine has no apt-get`
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' }
  const args = ['install', '-y', '-q', '--no-install-recommends', '-o', 'DPkg::Lock::Timeout=120', engine.package]
  // Without a package list nothing is found; an old one is good enough.
  const attempts = [args, ['update', '-q'], args]
  for (const attempt of attempts) {
    const { status } = spawnSync('/usr/bin/apt-get', attempt, { env, stdio: 'ignore', timeout: installMsMax })
    if (status === 0 && attempt === args) return undefined
  }
  return `${engine.name} is not installed, and apt-get could not install ${engine.package}`
}

function versionOf(path: string, { version }: Engine): string {
  const said = typeof version === 'string' ? outputOf(path, version) : readFileSync(version(path), 'utf8')
  return /\d+(\.\d+)+|\b\d{3}\b/.exec(said)?.[0] ?? 'unknown version'
}

function outputOf(path: string, flag: string): string {
  const { stdout, stderr } = spawnSync(path, [flag], { encoding: 'utf8' })
  return `${stdout}${stderr}`
}

/** The output of a program that ends by itself. @throws with what it said when it fails */
export function runProgram(path: string, args: readonly string[], timeoutMs = 60_000): string {
  return execFileSync(path, args, { encoding: 'utf8', stdio: 'pipe', timeout: timeoutMs })
}
