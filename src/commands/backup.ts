import { existsSync } from 'node:fs'
import { mkdir, mkdtemp, realpath, rename, rm } from 'node:fs/promises'
import { basename, dirname, join, resolve } from 'node:path'
import { findOutsideDatabase } from '../db/database-file.ts'
import { backUp } from '../db/embedded/backup.ts'
import { findCluster } from '../db/embedded/cluster.ts'
import { copyFolder } from '../db/embedded/copy-folder.ts'
import { locateEmbeddedPostgres } from '../db/embedded-postgres.ts'
import { reasonOf } from '../errors.ts'
import { syncFolder } from '../process/sync-folder.ts'
import { type Command, CommandError } from './command.ts'

/** Not copied as files: the database has its own copy, and logs and sockets are useless elsewhere. */
const notCopied = /^(postgres(\.new-.*|\.log(\.\d)?)?|sandbox\.json\.new|control\.json|signer\/.*\.sock)$/

export const backupCommand: Command = {
  usage: [
    [
      'penny backup FOLDER',
      'FOLDER must not exist yet; until the copy is complete it is named FOLDER.incomplete-…. To restore, copy it to DATA_DIR. The copy contains the master key if DATA_DIR does: store it in a safe place',
    ],
  ],
  options: {},
  wordsMax: 1,
  async run({ words: [wanted], config, output }) {
    if (wanted === undefined) throw new CommandError('Which folder? penny backup FOLDER', 2)
    if (findOutsideDatabase(config) !== undefined)
      throw new CommandError('The service uses an external database (DATABASE_URL). Back it up with its own tools.')
    const target = resolve(wanted)
    if (existsSync(target)) throw new CommandError(`${target} already exists. Name a new folder.`)
    if (`${await realPlaceOf(target)}/`.startsWith(`${await realPlaceOf(config.dataDir)}/`))
      throw new CommandError('The copy must be outside DATA_DIR.')
    const [folder, url] = [await findCluster(config.dataDir), await locateEmbeddedPostgres(config.dataDir)]
    if (folder === undefined)
      throw new CommandError(`There is no database in ${config.dataDir}. Set DATA_DIR to the service’s data folder.`)
    if (url === undefined) throw new CommandError(`The service is not running. Copy ${config.dataDir} with cp -a.`)
    await backUp(url, async (copyCluster) => {
      // A copy that was killed half-way must not look like a backup: PostgreSQL may start on it, with a wrong or an empty ledger.
      let unfinished: string | undefined
      try {
        await mkdir(dirname(target), { recursive: true })
        unfinished = await mkdtemp(`${target}.incomplete-`)
        await copyFolder(config.dataDir, unfinished, () => true)
        await copyCluster(folder, join(unfinished, 'postgres'))
        // After the database: a chain that is newer than the ledger is read again, but an older one never catches up.
        await copyFolder(config.dataDir, unfinished, (path) => notCopied.test(path))
        await rename(unfinished, target)
        await syncFolder(dirname(target))
      } catch (error) {
        if (unfinished !== undefined) await rm(unfinished, { recursive: true, force: true }).catch(() => {})
        const isOfFiles = (error as NodeJS.ErrnoException).syscall !== undefined
        throw isOfFiles ? new CommandError(`Nothing was backed up: ${reasonOf(error)}.`) : error
      }
    })
    output.write(output.json ? `${JSON.stringify({ folder: target })}\n` : `Copied to ${target}.\n`)
    return 0
  },
}

/** The real path of a folder that may not exist yet. A copy in DATA_DIR, also through a symbolic link, would copy itself without end. */
async function realPlaceOf(path: string): Promise<string> {
  return existsSync(path) ? realpath(path) : join(await realPlaceOf(dirname(path)), basename(path))
}
