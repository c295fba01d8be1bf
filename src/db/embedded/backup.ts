import { chown, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import pg from 'pg'
import { copyFolder } from './copy-folder.ts'

const startMsMax = 600_000

// Files that belong to the running server only, or that the next one creates again.
const notCopied =
  /^(postmaster\.(pid|opts)|\.s\.PGSQL.*|pg_(wal|replslot|stat_tmp|notify|serial|snapshots|subtrans|dynshmem)|base\/pgsql_tmp)$/

/**
 * Copies a running PostgreSQL into a folder on which another one can start. The copy has the state of the moment this returns:
 * files are copied while they change, and the write-ahead log, which is copied last, makes them consistent.
 */
export async function backUpCluster(url: string, folder: string, target: string): Promise<void> {
  // Everything runs on one connection: the backup and the slot end with it, whatever happens.
  const client = new pg.Client({ connectionString: url, application_name: 'penny backup', query_timeout: startMsMax })
  await client.connect()
  try {
    // Without the slot, a checkpoint during the copy could delete the log that the copy starts with.
    await client.query(`select pg_create_physical_replication_slot('penny_backup', true, true)`)
    await client.query(`select pg_backup_start('penny backup', true)`)
    await copyFolder(folder, target, (path) => notCopied.test(path))
    const { rows } = await client.query<{ labelfile: string }>('select labelfile from pg_backup_stop(false)')
    await copyFolder(join(folder, 'pg_wal'), join(target, 'pg_wal'))
    const label = join(target, 'backup_label')
    await writeFile(label, rows[0]!.labelfile, { mode: 0o600, flush: true })
    const { uid, gid } = await stat(join(target, 'PG_VERSION'))
    if (process.getuid?.() === 0) await chown(label, uid, gid)
  } finally {
    await client.end()
  }
}
