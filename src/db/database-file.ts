import { readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { OperatorError } from '../errors.ts'
import { writePrivateFile } from '../process/private-file.ts'
import { type Origin, outside } from './open-usable.ts'

const file = 'database-url'

/** The address of a database outside the data folder, and the source of that address. */
export type OutsideDatabase = { readonly url: string; readonly origin: Origin }

/** Stores the address of the service's database in the data folder, for commands on the same machine. It may contain a password. */
export function writeDatabaseFile(dataDir: string, url: string): void {
  writePrivateFile(join(dataDir, file), `${url}\n`)
}

/** The service uses the embedded database: a file from an earlier start would point to another one. */
export function removeDatabaseFile(dataDir: string): void {
  rmSync(join(dataDir, file), { force: true })
}

/** The configured database, or the one that the last start on this folder used. Undefined when that is the embedded one. */
export function findOutsideDatabase(config: {
  readonly databaseUrl: string | undefined
  readonly dataDir: string
}): OutsideDatabase | undefined {
  if (config.databaseUrl !== undefined) return { url: config.databaseUrl, origin: outside }
  const path = join(config.dataDir, file)
  const url = readLine(path)
  if (url === undefined) return undefined
  const remedy = 'Set DATABASE_URL, or start the service, which writes the file again.'
  return { url, origin: { name: `The database URL of the last start (${path})`, remedy } }
}

function readLine(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8').trim()
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ENOENT' || code === 'ENOTDIR') return undefined
    // Continuing without the file would give answers about another database.
    throw new OperatorError(
      `${path} cannot be read: ${(error as Error).message}. Set DATABASE_URL, or run the command as the user of the service.`,
      error,
    )
  }
}
