import assert from 'node:assert/strict'
import { once } from 'node:events'
import { realpathSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { preparePenny } from '../support/penny-command.ts'
import { until } from '../support/until.ts'
import { drill } from './drill.ts'
import { freePort } from './free-port.ts'
import { createServer, makeServerFolder, postgresEngine, urlOf } from './postgres-server.ts'

// A sandbox moves from its embedded PostgreSQL to Debian's, as docs/guides/copy-database.md says, with requests before and after. The
// first copy is killed half-way.

drill({
  engine: postgresEngine,
  tried: 'a service moves here from its embedded PostgreSQL; the first copy is killed',
  async run({ path }) {
    await using stack = new AsyncDisposableStack()
    const port = await freePort()
    const server = await createServer(dirname(realpathSync(path)), join(makeServerFolder(stack), 'server'), port, stack)
    const outside = { DATABASE_URL: urlOf(port, 'penny') }
    const penny = preparePenny()
    stack.defer(() => penny.remove())
    const refused = async (args: readonly string[], environment: Readonly<Record<string, string>>, reason: RegExp) => {
      const { code, stderr } = await penny.run(args, environment)
      assert.notEqual(code, 0)
      assert.match(stderr, reason)
    }
    const charged = async () => {
      for (let count = 0; count < 5; count += 1) await penny.json(['chat', 'What is a penny?', '--no-web'])
      return (await penny.json<{ charged_atomic: string }>(['balance'])).charged_atomic
    }

    await penny.start()
    await charged()
    await refused(['copy-database'], outside, /^penny: Another penny \(process \d+\) is running on /m)
    await penny.stop()
    await refused(['copy-database'], {}, /^penny: Set DATABASE_URL to an empty database/m)

    const killed = penny.spawn(['copy-database'], outside)
    const exited = once(killed, 'exit')
    const marked = `select from pg_class where relname = 'database_copy'`
    await until(async () => killed.exitCode !== null || (await server.database.query(marked)).length > 0)
    assert.ok(killed.kill('SIGKILL'), 'the copy ended before it was killed')
    await exited
    await refused(['start'], outside, /^penny: This database is an unfinished copy of the embedded database in /m)
    // The embedded one is as it was.
    await penny.start()
    const before = await charged()
    await penny.stop()

    const { code, stdout, stderr } = await penny.run(['copy-database', '--json'], outside)
    assert.equal(code, 0, stderr)
    const { tables, rows } = JSON.parse(stdout) as { tables: number; rows: number }
    await refused(['start'], {}, /^penny: This database was copied to 127\.0\.0\.1:\d+\/penny, which replaces it/m)
    await refused(['copy-database'], outside, /^penny: The embedded database was already copied to /m)
    await penny.start(outside)
    assert.equal((await penny.json<{ charged_atomic: string }>(['balance'])).charged_atomic, before)
    const after = await charged()
    assert.ok(BigInt(after) > BigInt(before))
    const audit = await penny.run(['audit'])
    assert.equal(audit.code, 0, audit.stdout)
    await penny.stop()
    await refused(['copy-database', '--undo'], {}, /There is no terminal to confirm on\. Add --yes/)
    assert.equal((await penny.run(['copy-database', '--undo', '--yes'])).code, 0)
    await refused(['copy-database'], outside, /^penny: 127\.0\.0\.1:\d+\/penny is not empty: it has /m)
    return `${rows} rows of ${tables} tables; ${before} units charged before, ${after} after; the audit holds`
  },
})
