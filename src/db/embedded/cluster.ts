import { execFile } from 'node:child_process'
import { chown, mkdtemp, readdir, readFile, realpath, rename, rm, stat } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { OperatorError } from '../../errors.ts'
import { syncFolder } from '../../process/sync-folder.ts'
import { prepareDataDir } from '../data-dir.ts'
import type { PostgresBinaries } from './binaries.ts'
import { chooseRunAs, cleanEnvironment, commandAs, type Identity, type RunAs } from './run-as.ts'

const execute = promisify(execFile)

/** A data folder on which PostgreSQL can start. */
export type Cluster = {
  /** The service's folder (the operator's `DATA_DIR`), as a real path. */
  readonly dataDir: string
  /** PostgreSQL's own folder in it; also contains the socket. */
  readonly folder: string
  readonly logFile: string
  readonly binaries: PostgresBinaries
  readonly runAs: RunAs
}

const initdbMaxMs = 120_000
const sidePrefix = 'postgres.new-'

/** The data folder below `DATA_DIR`, or undefined when there is none. Throws if this user may not use it. */
export async function findCluster(dataDir: string): Promise<string | undefined> {
  const folder = clusterFolder(dataDir)
  return (await dataOwner(folder)) === undefined ? undefined : realpath(folder)
}

/** Creates the data folder if needed. Throws if these programs or this user cannot run it. */
export async function prepareCluster(
  dataDir: string,
  binaries: PostgresBinaries,
  onProgress: (line: string) => void,
): Promise<Cluster> {
  const home = await prepareDataDir(dataDir)
  const folder = clusterFolder(home)
  const owner = await dataOwner(folder)
  const runAs = await chooseRunAs(owner, [binaries.folder, home])
  if (owner === undefined) {
    onProgress(`Creating the database in ${folder}.`)
    await initialize(home, folder, binaries, runAs)
  }
  await checkVersion(folder, binaries)
  return { dataDir: home, folder, logFile: join(home, 'postgres.log'), binaries, runAs }
}

function clusterFolder(dataDir: string): string {
  return join(dataDir, 'postgres')
}

/** The owner of the data; undefined when there is none yet. */
async function dataOwner(folder: string): Promise<Identity | undefined> {
  try {
    const { uid, gid } = await stat(join(folder, 'PG_VERSION'))
    const we = process.getuid?.()
    if (uid === 0 || (we !== 0 && uid !== we)) throw new DataOwnerError(folder, uid)
    return { uid, gid }
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ENOENT') return undefined
    // Another user's folder: its contents cannot be read.
    if (code === 'EACCES') throw new DataOwnerError(folder, (await stat(folder)).uid)
    throw error
  }
}

/**
 * Creates under a temporary name and renames: a killed initdb leaves no incomplete database, and one of two concurrent runs wins.
 */
async function initialize(home: string, folder: string, binaries: PostgresBinaries, runAs: RunAs): Promise<void> {
  await removeAbandoned(home)
  const side = await mkdtemp(join(home, sidePrefix))
  try {
    if (runAs.owner !== undefined) await chown(side, runAs.owner.uid, runAs.owner.gid)
    await runInitdb(side, binaries, runAs)
    await rename(side, folder)
  } catch (error) {
    await rm(side, { recursive: true, force: true })
    const { code } = error as NodeJS.ErrnoException
    // The folder exists: a concurrent run has created it.
    if (code !== 'ENOTEMPTY' && code !== 'EEXIST') throw error
  }
  // Without this, a power failure could undo the rename after money was committed.
  await syncFolder(home)
  await syncFolder(dirname(home))
}

async function runInitdb(side: string, binaries: PostgresBinaries, runAs: RunAs): Promise<void> {
  // Trust authentication is safe here: the only access is a socket in a folder that only its owner (and root) can enter.
  const flags = [
    '-U',
    'penny',
    '--auth=trust',
    '--encoding=UTF8',
    '--locale=C',
    '--data-checksums',
    '--no-instructions',
  ]
  const [program, args] = commandAs(runAs, binaries.initdb, ['-D', side, ...flags])
  const options = { ...runAs.become, cwd: '/', env: cleanEnvironment, timeout: initdbMaxMs }
  try {
    await execute(program, args, options)
  } catch (error) {
    throw noRoom.test((error as { stderr?: string }).stderr ?? '')
      ? new OperatorError(
          `The disk of DATA_DIR (${dirname(side)}) is full. Free at least 200 MB, or set DATA_DIR to another disk.`,
          error,
        )
      : new InitdbError(side, error)
  }
}

/** Removes temporary folders of killed initdb runs. A recent one may belong to another process at work. */
async function removeAbandoned(home: string): Promise<void> {
  for (const name of await readdir(home)) {
    if (!name.startsWith(sidePrefix)) continue
    const path = join(home, name)
    const { mtimeMs } = await stat(path)
    if (Date.now() - mtimeMs > 2 * initdbMaxMs) await rm(path, { recursive: true, force: true })
  }
}

async function checkVersion(folder: string, binaries: PostgresBinaries): Promise<void> {
  const text = await readFile(join(folder, 'PG_VERSION'), 'utf8').catch(() => '')
  const found = Number.parseInt(text, 10)
  if (found !== binaries.major)
    throw new OperatorError(
      Number.isNaN(found)
        ? `${folder} exists and is not a PostgreSQL data folder. Move it, or set DATA_DIR to another folder.`
        : `${folder} was created by PostgreSQL ${found}; this version of penny has PostgreSQL ${binaries.major}: ` +
            `upgrade the folder with pg_upgrade, or run a PostgreSQL ${found} on it and set DATABASE_URL.`,
    )
}

class DataOwnerError extends OperatorError {
  constructor(folder: string, uid: number) {
    super(
      uid === 0
        ? `${folder} belongs to root, and PostgreSQL does not run as root. Change its owner (chown -R nobody ${folder}).`
        : `${folder} belongs to user ${uid}. Start penny as that user or as root, or set DATA_DIR to another folder.`,
    )
  }
}

const noRoom = /No space left on device|Disk quota exceeded/

class InitdbError extends OperatorError {
  constructor(side: string, cause: unknown) {
    const lines = ((cause as { stderr?: string }).stderr ?? '').trim().split('\n')
    const reason = lines.find((line) => /error:|FATAL:/.test(line)) ?? lines.at(-1)
    super(`No database can be created in ${side}: ${reason || String(cause)}`, cause)
  }
}
