import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { test } from 'node:test'
import { promisify } from 'node:util'
import { encodeFunctionData, type Hex } from 'viem'
import { privateKeyToAccount } from 'viem/accounts'
import { devUsdcAbi } from '../../contracts/generated/DevUsdc.abi.ts'
import { settlementGatewayAbi } from '../../contracts/generated/SettlementGateway.abi.ts'
import { childEnvironment, pennyProgram } from '../support/child-environment.ts'
import { account as chainAccount, sendCall } from '../support/gateway.ts'
import {
  gasAllowance,
  publicClient,
  signCall,
  startChain,
  temporaryFolder,
  usdc,
  usdcBalance,
  withdrawalDelay,
} from '../support/sandbox-chain.ts'
import { keys, masterKey } from '../support/signing.ts'

const value = 1_234_567n

async function penny(environment: Record<string, string>, ...words: string[]) {
  return promisify(execFile)(process.execPath, [...pennyProgram(), ...words], {
    env: { ...childEnvironment, ...environment },
  })
}

// No service, no signer, no gateway, no database: only the chain, the master key and the account's id.
test('with everything of ours gone, an account’s money is withdrawn from the contract by its key', async (t) => {
  const chain = await startChain(t)
  await chain.ready
  const wallet = chain.addresses.gateway
  const id = randomUUID()
  const stranger = chainAccount('stranger')
  await chain.admin.giveUsdc(stranger.address, value + gasAllowance)
  const approve = encodeFunctionData({ abi: devUsdcAbi, functionName: 'approve', args: [wallet, value] })
  await sendCall(chain, stranger, usdc, approve)
  const depositor = keys.ofAccount(id).address
  const args = [usdc, depositor, value] as const
  await sendCall(
    chain,
    stranger,
    wallet,
    encodeFunctionData({ abi: settlementGatewayAbi, functionName: 'depositFor', args }),
  )

  const environment = { DATA_DIR: await temporaryFolder(t), MASTER_KEY: masterKey.toString('hex') }
  const { stdout } = await penny(environment, 'accounts', 'key', id, '--yes', '--json')
  const exported = JSON.parse(stdout) as { address: string; private_key: Hex }
  const holder = privateKeyToAccount(exported.private_key)
  assert.deepEqual([holder.address, holder.address.toLowerCase()], [exported.address, depositor])

  await chain.admin.giveUsdc(holder.address, 1_000_000n)
  const initiate = encodeFunctionData({
    abi: settlementGatewayAbi,
    functionName: 'initiateWithdrawal',
    args: [usdc, value],
  })
  await sendCall(chain, holder, wallet, initiate)
  const withdraw = encodeFunctionData({ abi: settlementGatewayAbi, functionName: 'withdraw', args: [usdc] })
  const early = await signCall(holder, 1, wallet, withdraw, 500_000n)
  const client = publicClient(chain.url)
  const hash = await client.sendRawTransaction({ serializedTransaction: early })
  assert.equal((await client.getTransactionReceipt({ hash })).status, 'reverted', 'not before the delay is over')
  await chain.admin.mine(Number(withdrawalDelay))
  await sendCall(chain, holder, wallet, withdraw)
  assert.equal(await usdcBalance(chain.url, wallet), 0n)

  const owner = chainAccount('owner').address
  const send = encodeFunctionData({ abi: devUsdcAbi, functionName: 'transfer', args: [owner, value] })
  await sendCall(chain, holder, usdc, send)
  assert.equal(await usdcBalance(chain.url, owner), value)
})

test('a key is printed only on --yes, only of a whole id, and never from a master key made on the spot', async (t) => {
  const environment = { DATA_DIR: await temporaryFolder(t), MASTER_KEY: masterKey.toString('hex') }
  const id = randomUUID()
  const refused = (words: string[], message: RegExp, from: Record<string, string> = environment) =>
    assert.rejects(penny(from, 'accounts', 'key', ...words), (error: { stdout: string; stderr: string }) => {
      assert.equal(error.stdout, '')
      assert.match(error.stderr, message)
      return true
    })
  await refused([id], /Anyone who sees this key can take all/)
  await refused(['--yes'], /Give the full id/)
  await refused([id.slice(0, 8), '--yes'], /Give the full id/)
  await refused([id, '--yes'], /No master key found/, { DATA_DIR: await temporaryFolder(t) })
  const { stdout } = await penny(environment, 'accounts', 'key', id, '--yes')
  assert.match(stdout, /Anyone who sees this key can take all/)
})
