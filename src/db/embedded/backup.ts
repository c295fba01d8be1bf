import { chown, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import pg from 'pg'
import { copyFolder } from './copy-folder.ts'

const startMsMax = 600_000

// What belongs to the running server alone, or is made anew by the next one.
const notCopied =
  /^(postmaster\.(pid|opts)|\.s\.PGSQL.*|pg_(wal|replslot|stat_tmp|notify|serial|snapshots|subtrans|dynshmem)|base\/pgsql_tmp)$/

/**
 * Copies a running PostgreSQL into a folder from which another can start. The copy is of the moment this returns: files are taken
 * while they change, and the log that is copied last makes them whole.
 */
export async function backUpCluster(url: string, folder: string, target: string): Promise<void> {
  // All on one connection: the backup and the slot end with it, whatever happens.
  const client = new pg.Client({ connectionString: url, application_name: 'penny backup', query_timeout: startMsMax })
  await client.connect()
  try {
    // Without the slot a checkpoint meanwhile may throw away the log that the copy begins with.
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
