import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { childEnvironment, pennyProgram } from '../support/child-environment.ts'
import {
  account,
  ask,
  deposit,
  ended,
  type GatewayBench,
  onChain,
  openBench,
  paymentBody,
  relayerKey,
  seller,
  settle,
  token,
  untilBalance,
} from '../support/gateway.ts'
import { temporaryFolder, usdc } from '../support/sandbox-chain.ts'

test('penny gateway needs only its environment, and continues where it stopped', async (t) => {
  const bench = await openBench(t)
  const folder = await temporaryFolder(t)
  const keyFile = join(folder, 'relayer.key')
  await writeFile(keyFile, `${relayerKey}\n`)
  const environment = environmentOf(bench, folder, keyFile)
  const payer = account('payer')
  await deposit(bench, payer, 10_000n)

  const first = await start(environment)
  assert.match(first.url, /^http:\/\/127\.0\.0\.1:/)
  await untilBalance(first.url, payer.address, '0.01')
  const id = await settle(first.url, await paymentBody(bench.wallet, payer))
  assert.deepEqual(await first.stop(), [0, null])

  const second = await start({ ...environment, GATEWAY_BATCH_MS: '10' })
  assert.equal((await ended(second.url, id)).status, 'completed')
  assert.equal(await onChain(bench, seller.address), 1_000n)
  const { body } = await ask(second.url, '/v1/info')
  assert.equal(body.domains[0].walletContract.address.toLowerCase(), bench.wallet.toLowerCase())
  assert.deepEqual(await second.stop(), [0, null])
})

test('penny gateway says what it needs', async (t) => {
  const child = spawn(process.execPath, [...pennyProgram(), 'gateway'], {
    env: { ...childEnvironment, DATA_DIR: await temporaryFolder(t), CHAIN_RPC_URL: 'http://127.0.0.1:1' },
  })
  const [[said], [code]] = await Promise.all([once(child.stderr, 'data'), once(child, 'exit')])
  assert.match(
    String(said),
    /settings that are not set: GATEWAY_RELAYER_KEY, GATEWAY_TOKEN, DATABASE_URL, USDC_ADDRESS, GATEWAY_WALLET_ADDRESS\./,
  )
  assert.equal(code, 1)
})

function environmentOf({ databaseUrl, chain, wallet }: GatewayBench, folder: string, keyFile: string) {
  return {
    ...childEnvironment,
    DATA_DIR: folder,
    LOG_LEVEL: 'silent',
    DATABASE_URL: databaseUrl,
    CHAIN_RPC_URL: chain.url,
    USDC_ADDRESS: usdc,
    GATEWAY_WALLET_ADDRESS: wallet,
    GATEWAY_RELAYER_KEY_FILE: keyFile,
    GATEWAY_TOKEN: token,
    GATEWAY_PAYEES: `${account('other').address}, ${seller.address}`,
    // As in our image. The gateway has a setting of its own.
    HOST: '0.0.0.0',
    GATEWAY_PORT: '0',
    // A transfer of the first start must not be settled by it.
    GATEWAY_BATCH_MS: '60000',
  }
}

async function start(env: Record<string, string>) {
  const child = spawn(process.execPath, [...pennyProgram(), 'gateway', '--json'], {
    env,
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const [line] = await Promise.race([once(child.stdout, 'data'), once(child, 'exit')])
  assert.equal(typeof line, 'object', 'it ended before it was ready')
  const { url } = JSON.parse(String(line)) as { url: string }
  const stop = async () => {
    child.kill('SIGTERM')
    return once(child, 'exit')
  }
  return { url, stop }
}
