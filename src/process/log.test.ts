import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { test } from 'node:test'
import { promisify } from 'node:util'

test('the log keeps only the host of a URL in an error: the rest may contain a provider’s key', async () => {
  const program = `
    import { createLog } from ${JSON.stringify(new URL('log.ts', import.meta.url).href)}
    const cause = new Error('Details: no project at wss://user:hunter2@rpc.example/hunter3')
    const error = new Error('HTTP request failed.\\n\\nURL: https://rpc.example:8545/v2/hunter4?key=hunter5\\nagain', { cause })
    createLog('info').warn({ err: error }, 'the chain does not answer')`
  const { stderr } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', program])
  const { err } = JSON.parse(stderr) as { err: { message: string; cause: { message: string } } }
  assert.equal(err.message, 'HTTP request failed.\n\nURL: https://rpc.example:8545/…\nagain')
  assert.equal(err.cause.message, 'Details: no project at wss://rpc.example/…')
  assert.doesNotMatch(stderr, /hunter/)
})
