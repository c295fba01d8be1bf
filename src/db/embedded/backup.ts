import { chown, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import pg from 'pg'
import { OperatorError } from '../../errors.ts'
import { copyFolder } from './copy-folder.ts'

const startMsMax = 600_000

// Files that belong to the running server only, or that the next one creates again.
const notCopied =
  /^(postmaster\.(pid|opts)|\.s\.PGSQL.*|pg_(wal|replslot|stat_tmp|notify|serial|snapshots|subtrans|dynshmem)|base\/pgsql_tmp)$/

/** Copies the cluster in a folder into another folder. See `backUp`. */
export type CopyCluster = (folder: string, target: string) => Promise<void>

/**
 * Runs `work`, which copies a running PostgreSQL with `copyCluster` into a folder on which another one can start. The copy has the state
 * of the moment that returns: files are copied while they change, and the write-ahead log, which is copied last, makes them consistent.
 *
 * @throws while another backup of this server runs: `work` is always the only one
 */
export async function backUp(url: string, work: (copyCluster: CopyCluster) => Promise<void>): Promise<void> {
  // Everything runs on one connection: the backup and the slot end with it, whatever happens.
  const client = new pg.Client({ connectionString: url, application_name: 'penny backup', query_timeout: startMsMax })
  // A connection that breaks fails its next statement. Without a listener its 'error' event would end the process.
  client.on('error', () => {})
  await client.connect()
  try {
    // Without the slot, a checkpoint during the copy could delete the log that the copy starts with.
    await client.query(`select pg_create_physical_replication_slot('penny_backup', true, true)`).catch((error) => {
      throw error.code === slotExists
        ? new OperatorError('Another penny backup of this service is running. Wait until it ends.', error)
        : error
    })
    await work((folder, target) => copyRunning(client, folder, target))
  } finally {
    await client.end()
  }
}

const slotExists = '42710'

async function copyRunning(client: pg.Client, folder: string, target: string): Promise<void> {
  await client.query(`select pg_backup_start('penny backup', true)`)
  await copyFolder(folder, target, (path) => notCopied.test(path))
  const { rows } = await client.query<{ labelfile: string }>('select labelfile from pg_backup_stop(false)')
  await copyFolder(join(folder, 'pg_wal'), join(target, 'pg_wal'))
  const label = join(target, 'backup_label')
  await writeFile(label, rows[0]!.labelfile, { mode: 0o600, flush: true })
  const { uid, gid } = await stat(join(target, 'PG_VERSION'))
  if (process.getuid?.() === 0) await chown(label, uid, gid)
}
