import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { atEnd } from '../../test/support/at-end.ts'
import { childEnvironment, pennyProgram } from '../../test/support/child-environment.ts'
import { until } from '../../test/support/until.ts'
import { readPostmasterPid } from '../db/embedded/postmaster.ts'
import { startEmbeddedPostgres } from '../db/embedded-postgres.ts'

// Later commands would use the server and not stop it, and a copy of the folder would be one of a running database.
test('Ctrl-C while a command starts PostgreSQL leaves no server behind', async (t) => {
  const dataDir = mkdtempSync(join(tmpdir(), 'penny-command-'))
  atEnd(t, () => rmSync(dataDir, { recursive: true, force: true }))
  await (await startEmbeddedPostgres({ dataDir })).stop()
  const cluster = join(dataDir, 'postgres')
  const command = spawn(process.execPath, [...pennyProgram(), 'accounts'], {
    env: { ...childEnvironment, DATA_DIR: dataDir },
    stdio: 'ignore',
  })
  const exited = once(command, 'exit')
  await until(async () => (await readPostmasterPid(cluster)) !== undefined)
  command.kill('SIGINT')
  assert.deepEqual(await exited, [130, null])
  assert.equal(await readPostmasterPid(cluster), undefined)
})
