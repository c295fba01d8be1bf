import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { isRunning, startNode } from '../faults/node-process.ts'
import { testDatabase } from '../support/postgres.ts'
import { startScriptedUpstream } from '../support/scripted-upstream.ts'
import { drill } from './drill.ts'
import { runProgram } from './engine.ts'

const engine = { name: 'Prometheus', program: 'promtool', package: 'prometheus', version: '--version' }
const shipped = (file: string) => fileURLToPath(new URL(`../../deploy/prometheus/${file}`, import.meta.url))

drill({
  engine,
  tried: 'promtool reads the shipped alert rules',
  async run({ path }) {
    const said = runProgram(path, ['check', 'rules', shipped('alerts.yaml')])
    return /SUCCESS: (\d+ rules found)/.exec(said)![1]!
  },
})

drill({
  engine,
  tried: 'promtool accepts the metrics of a running service',
  async run({ path }) {
    const ledger = await testDatabase()
    const upstream = await startScriptedUpstream()
    const dataDir = mkdtempSync(join(tmpdir(), 'penny-promtool-'))
    const times = { leaseMs: 15_000, checkpointMs: 2_000, drainMs: 0 }
    const node = await startNode({ dataDir, databaseUrl: ledger.url, upstreamUrl: upstream.url, ...times })
    try {
      if (!isRunning(node)) throw new Error(`a node does not start: ${node.complaint}`)
      const page = await (await fetch(`http://127.0.0.1:${node.port}/metrics`)).text()
      assert.match(page, /^penny_build_info/m)
      const { status, stdout, stderr } = spawnSync(path, ['check', 'metrics'], { input: page, encoding: 'utf8' })
      assert.equal(status, 0, `${stdout}${stderr}`)
      return `${page.match(/^# TYPE /gm)!.length} metrics`
    } finally {
      if (isRunning(node)) {
        node.signal('SIGTERM')
        await node.exited
      }
      await upstream.close()
      await ledger.drop()
      rmSync(dataDir, { recursive: true, force: true })
    }
  },
})
