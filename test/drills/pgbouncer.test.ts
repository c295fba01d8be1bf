import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { isRunning, startNode } from '../faults/node-process.ts'
import { testDatabase } from '../support/postgres.ts'
import { startScriptedUpstream } from '../support/scripted-upstream.ts'
import { untilFits } from '../support/until.ts'
import { drill } from './drill.ts'
import { freePort } from './free-port.ts'

// The settings are the usual remedy for "unsupported startup parameter": with them, everything but session state works.

const engine = { name: 'PgBouncer', program: 'pgbouncer', package: 'pgbouncer', version: '--version' }

for (const { mode, tried, expected } of [
  { mode: 'transaction', tried: 'a pool in transaction mode is refused at the start', expected: 'refused' },
  { mode: 'session', tried: 'a pool in session mode serves', expected: 'ready' },
] as const) {
  drill({
    engine,
    tried,
    async run({ path }) {
      const ledger = await testDatabase()
      const upstream = await startScriptedUpstream()
      const folder = mkdtempSync(join(tmpdir(), 'penny-pgbouncer-'))
      const port = await freePort()
      const file = join(folder, 'pgbouncer.ini')
      writeFileSync(file, configuration(ledger.url, mode, port))
      // It refuses to run as root, and reads its file as the other user.
      chmodSync(folder, 0o755)
      const asOther = process.getuid?.() === 0 ? ['-u', 'nobody'] : []
      const pooler = spawn(path, ['-q', ...asOther, file], { stdio: 'ignore' })
      try {
        const outcome = await startThrough(
          `postgres://penny@127.0.0.1:${port}/penny?sslmode=disable`,
          folder,
          upstream.url,
        )
        assert.equal(outcome.state, expected, outcome.said)
        if (expected === 'refused') assert.match(outcome.said, /^penny: DATABASE_URL points to a connection pooler/m)
        return outcome.state
      } finally {
        const ended = once(pooler, 'exit')
        if (pooler.kill('SIGKILL')) await ended
        await upstream.close()
        await ledger.drop()
        rmSync(folder, { recursive: true, force: true })
      }
    },
  })
}

function configuration(url: string, mode: string, port: number): string {
  const server = new URL(url)
  const host = server.searchParams.get('host') ?? server.hostname
  return `[databases]
penny = host=${host} port=${server.port || 5432} dbname=${server.pathname.slice(1)} user=${server.username}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = any
pool_mode = ${mode}
default_pool_size = 40
ignore_startup_parameters = extra_float_digits,statement_timeout,idle_in_transaction_session_timeout,options
`
}

async function startThrough(
  databaseUrl: string,
  dataDir: string,
  upstreamUrl: string,
): Promise<{ readonly state: 'ready' | 'refused'; readonly said: string }> {
  const times = { leaseMs: 15_000, checkpointMs: 2_000, drainMs: 0 }
  const node = await startNode({ dataDir: join(dataDir, 'node'), databaseUrl, upstreamUrl, ...times })
  if (!isRunning(node)) return { state: 'refused', said: node.complaint }
  await untilFits(
    () => fetch(`http://127.0.0.1:${node.port}/readyz`),
    ({ status }) => status === 200,
  )
  node.signal('SIGTERM')
  const { complaint } = await node.exited
  return { state: 'ready', said: complaint }
}
