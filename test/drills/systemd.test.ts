import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { until } from '../support/until.ts'
import { drill, isWhole } from './drill.ts'
import { machineProblem, startMachine } from './systemd-machine.ts'

// The shipped unit under a real systemd. The sandbox stands in for model and chain, so that no network is needed.

const engine = { name: 'systemd', program: 'systemd', package: 'systemd', version: '--version' }
const shipped = readFileSync(fileURLToPath(new URL('../../deploy/systemd/penny.service', import.meta.url)), 'utf8')
const command = /^ExecStart=.*$/m
const unit = shipped.replace(command, 'ExecStart=/opt/node/bin/node /opt/penny/bin/penny.mjs start --hide-secrets')
const settings = 'NODE_ENV=development\nSHUTDOWN_DELAY_MS=0\nHOME=/var/lib/penny\n'

test('the drilled unit differs from the shipped one only in its command', () => {
  assert.equal(shipped.match(new RegExp(command, 'gm'))?.length, 1)
  assert.equal(unit.replace(command, ''), shipped.replace(command, ''))
})

const problem = machineProblem()
drill({
  engine,
  tried: `the shipped unit: started when ready, ${isWhole ? 'restarted after kill -9, ' : ''}stopped with nothing left`,
  ...(problem !== undefined && { problem }),
  async run() {
    const machine = await startMachine({ 'systemd/system/penny.service': unit, 'penny/penny.env': settings })
    try {
      const show = (property: string) => machine.systemctl('show', '--value', '-p', property, 'penny')
      machine.run('systemctl', 'start', 'penny')
      assert.equal(show('ActiveState'), 'active', machine.output())
      // Started means ready: no waiting here.
      assert.match(machine.run('/opt/node/bin/node', '-e', readyScript), /^200/)
      if (isWhole) {
        const killed = show('MainPID')
        machine.run('kill', '-9', killed)
        await until(() => show('MainPID') !== killed && show('ActiveState') === 'active')
        assert.equal(show('NRestarts'), '1')
      }
      machine.run('systemctl', 'stop', 'penny')
      assert.deepEqual(
        [show('ActiveState'), show('Result'), show('ExecMainStatus')],
        ['inactive', 'success', '0'],
        machine.output(),
      )
      assert.equal(machine.run('ps', '-eo', 'user,args').match(/^penny.*$/gm), null)
      const exposure = /Overall exposure level for penny.service: ([\d.]+)/.exec(
        machine.run('systemd-analyze', 'security', 'penny'),
      )
      return `ready,${isWhole ? ' restarted,' : ''} stopped with exit code 0; systemd-analyze security ${exposure?.[1] ?? 'unknown'}`
    } finally {
      await machine.stop()
    }
  },
})

const readyScript = `fetch('http://127.0.0.1:8402/readyz').then(async (answer) => console.log(answer.status, await answer.text()))`
