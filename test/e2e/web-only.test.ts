import assert from 'node:assert/strict'
import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { after, type TestContext, test } from 'node:test'
import { atEnd } from '../support/at-end.ts'
import { preparePenny } from '../support/penny-command.ts'
import { testDatabase } from '../support/postgres.ts'

// Machines that serve the public, on a real chain: nothing on them can sign.

const penny = preparePenny()
after(() => penny.remove())

const settings = {
  ROLES: 'web',
  NODE_ENV: 'production',
  UPSTREAM_BASE_URL: 'http://127.0.0.1:1/v1',
  SEARCH_PROVIDER: 'none',
  CHAIN_RPC_URL: 'http://127.0.0.1:1',
  GATEWAY_URL: 'http://127.0.0.1:1',
  USDC_ADDRESS: `0x${'1'.repeat(40)}`,
  GATEWAY_WALLET_ADDRESS: `0x${'2'.repeat(40)}`,
}

type Started = { readonly url: string; readonly child: ChildProcess; complaints(): string }

async function start(t: TestContext, environment: Readonly<Record<string, string>>): Promise<Started> {
  const child = penny.spawn(['start'], environment)
  atEnd(t, () => child.kill('SIGKILL'))
  let printed = ''
  let complaints = ''
  child.stderr!.on('data', (text) => (complaints += text))
  const url = await new Promise<string>((resolve, reject) => {
    child.stdout!.on('data', (text) => {
      printed += text
      const [, address] = /ready at (\S+)\/v1/.exec(printed) ?? []
      if (address !== undefined) resolve(address)
    })
    child.once('exit', (code) => reject(new Error(`it ended with ${code}: ${complaints}`)))
  })
  return { url, child, complaints: () => complaints }
}

async function stop({ child }: Started): Promise<void> {
  const ended = once(child, 'exit')
  child.kill('SIGTERM')
  assert.deepEqual(await ended, [0, null])
}

test('a web machine serves a real chain’s customers without the master key, and ignores one it is given', async (t) => {
  const { url, drop } = await testDatabase()
  atEnd(t, drop)
  const without = await start(t, { ...settings, DATABASE_URL: url })
  assert.equal((await fetch(`${without.url}/readyz`)).status, 200)
  assert.equal((await fetch(`${without.url}/v1/models`)).status, 200)
  assert.equal((await fetch(`${without.url}/api/receipts/req_0`)).status, 404)
  assert.equal(without.complaints(), '')
  await stop(without)

  const given = await start(t, { ...settings, DATABASE_URL: url, MASTER_KEY: 'ab'.repeat(32) })
  assert.match(
    given.complaints(),
    /^ {2}MASTER_KEY is ignored: this machine does not sign, because ROLES has no jobs.*\n$/,
  )
  await stop(given)
  for (const file of ['master.key', 'master.fingerprint', 'signer'])
    assert.equal(existsSync(join(penny.dataDir, file)), false, file)
})
