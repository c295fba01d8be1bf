import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { test } from 'node:test'
import { promisify } from 'node:util'
import type { ChildReady, ChildSettings } from '../../test/support/supervised-child.ts'
import { OperatorError } from '../errors.ts'
import { supervise } from './supervisor.ts'

const module = new URL('../../test/support/supervised-child.ts', import.meta.url)

test('a helper is given no secret of the service: its environment has only what it needs to run', async () => {
  const secrets = { MASTER_KEY: 'ab', UPSTREAM_API_KEY: 'cd', DATABASE_URL: 'ef', METRICS_TOKEN: 'gh' }
  Object.assign(process.env, secrets)
  const child = await supervise<ChildSettings, ChildReady>({ name: 'the helper', module, settings: () => ({}) })
  try {
    const { environment } = child.ready
    assert.deepEqual(
      Object.keys(secrets).filter((name) => name in environment),
      [],
    )
    assert.equal(environment.PATH, process.env.PATH)
  } finally {
    await child.stop()
    for (const name of Object.keys(secrets)) delete process.env[name]
  }
})

test('an error of a helper process at its start stops the start, with its message', async () => {
  const refuseWith = 'MASTER_KEY is not the one that it was.'
  await assert.rejects(
    supervise<ChildSettings, ChildReady>({ name: 'the helper', module, settings: () => ({ refuseWith }) }),
    (error) => error instanceof OperatorError && error.message === refuseWith,
  )
})

test('a helper that is not ready in time is named, with the timeout, and is stopped', async () => {
  await assert.rejects(
    supervise<ChildSettings, ChildReady>({
      name: 'settlement',
      module,
      settings: () => ({ hang: true }),
      readyMsMax: 2_000,
    }),
    (error) =>
      error instanceof OperatorError &&
      /^Settlement was not ready within 2 s\. Is this machine overloaded\?/.test(error.message),
  )
})

test('a cancelled start stops its helper process', async () => {
  const unwanted = new AbortController()
  const settings = () => {
    setImmediate(() => unwanted.abort(new Error('no longer wanted')))
    return { hang: true }
  }
  await assert.rejects(
    supervise<ChildSettings, ChildReady>({ name: 'the helper', module, settings, signal: unwanted.signal }),
    { name: 'AbortError' },
  )
})

test('a helper that hangs is killed and started again; one that answers is left alone', async () => {
  const restarted = Promise.withResolvers<string>()
  const start = (onRestart: (exit: string) => void) =>
    supervise<ChildSettings, ChildReady>({
      name: 'the helper',
      module,
      settings: () => ({}),
      onRestart,
      heartbeatMs: 1_000,
    })
  const healthy = await start((exit) => restarted.reject(new Error(`the healthy helper: ${exit}`)))
  const hung = await start(restarted.resolve)
  try {
    process.kill(hung.ready.pid, 'SIGSTOP')
    assert.equal(await restarted.promise, 'it did not answer and was killed')
    assert.throws(() => process.kill(hung.ready.pid, 0), { code: 'ESRCH' })
    assert.ok(process.kill(healthy.ready.pid, 0))
  } finally {
    await Promise.all([healthy.stop(), hung.stop()])
  }
})

// Each connection is an open file: the crash of a helper then ended the service too.
test('a helper that cannot be started again while too many files are open is started when there are fewer', async () => {
  const script = `
    import { closeSync, openSync } from 'node:fs'
    import { setTimeout as pause } from 'node:timers/promises'
    import { supervise } from ${JSON.stringify(new URL('supervisor.ts', import.meta.url))}
    const exits = []
    const module = new URL(${JSON.stringify(module)})
    const child = await supervise({ name: 'the helper', module, settings: () => ({}), onRestart: (exit) => exits.push(exit) })
    const { pid } = child.ready
    const files = []
    try {
      for (;;) files.push(openSync('/dev/null'))
    } catch {}
    process.kill(pid, 'SIGKILL')
    while (exits.length < 2) await pause(20)
    for (const file of files) closeSync(file)
    while (child.ready.pid === pid) await pause(20)
    await child.stop()
    console.log(exits[1])`
  const node = [process.execPath, '--eval', script]
  const limited = ['-c', 'ulimit -n 100 && exec "$@"', 'sh', ...node]
  const { stdout } = await promisify(execFile)('/bin/sh', limited, { timeout: 60_000 })
  assert.match(stdout, /EMFILE/)
})
