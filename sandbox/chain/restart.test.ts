import assert from 'node:assert/strict'
import { appendFile, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { crc32 } from 'node:zlib'
import { encodeFunctionData, type Hex, keccak256 } from 'viem'
import { devUsdcAbi } from '../../contracts/generated/DevUsdc.abi.ts'
import { settlementGatewayAbi } from '../../contracts/generated/SettlementGateway.abi.ts'
import { startCrashingChain } from '../../test/support/crashing-chain.ts'
import {
  account,
  chainId,
  contracts,
  history,
  publicClient,
  relayer,
  rpc,
  rpcAll,
  signCall,
  signTransfer,
  startChain,
  temporaryFolder,
  usdc,
  usdcBalance,
} from '../../test/support/sandbox-chain.ts'
import { Chain } from './chain.ts'
import { chainMethods } from './methods.ts'
import type { ChainServer } from './server.ts'

const [alice, bob] = [account('alice'), account('bob')]

test('a restarted chain is the same chain: every block, state, receipt and log of 500 and more', async (t) => {
  const dataDir = await temporaryFolder(t)
  const clock = { ms: Date.UTC(2026, 10, 15) }
  const start = () => startChain(t, { dataDir, clock: () => clock.ms })

  // 1. A busy day: successes, reverts, refusals, internal changes, and many reads in between.
  const first = await start()
  await liveThrough(first, clock, 520)
  const before = await everything(first.url)
  assert.ok(before.blocks.length > 500)
  await first.close()

  // 2. The same chain, replayed from the journal. The system clock has advanced meanwhile, which changes nothing.
  clock.ms += 86_400_000
  const second = await start()
  await second.ready
  assert.deepEqual(await everything(second.url), before)

  // 3. It continues from there, also after another restart.
  await second.admin.giveUsdc(alice.address, 1n)
  const after = await everything(second.url)
  assert.deepEqual(after.blocks.slice(0, before.blocks.length), before.blocks)
  await second.close()
  const third = await start()
  await third.ready
  assert.deepEqual(await everything(third.url), after)
})

// The client got no response. Queried by its hash, the transaction is there, and sent again it is refused: paid once.
test('a transaction that was in the journal when the plug was pulled is mined', async (t) => {
  const dataDir = await temporaryFolder(t)
  const { url, exited } = await startCrashingChain({ dataDir, step: 'appended', reach: 4 })
  assert.ok(url)
  // The founding and the relayer's gas are the first two entries.
  await rpc(url, 'eth_sendRawTransaction', await mint(0))
  const raw = await mint(1)
  await assert.rejects(rpc(url, 'eth_sendRawTransaction', raw), 'the chain died before it could answer')
  await exited

  const { url: again } = await startChain(t, { dataDir })
  const receipt = await publicClient(again).getTransactionReceipt({ hash: keccak256(raw) })
  assert.equal(receipt.status, 'success')
  assert.match((await rpc(again, 'eth_sendRawTransaction', raw)).error?.message ?? '', /nonce too low/i)
  assert.equal(await usdcBalance(again, bob.address), 2n)
})

for (const [step, reach, where] of [
  ['appended', 1, 'right after its founding'],
  ['appended', 2, 'before the relayer had its gas'],
  ['applied', 1, 'when the relayer had its gas'],
  ['appended', 5, 'before a transaction was mined'],
  ['applied', 4, 'after a transaction was mined, before it was answered'],
] as const) {
  test(`nothing that was answered is lost when the plug is pulled ${where}`, async (t) => {
    const dataDir = await temporaryFolder(t)
    const raws = await Promise.all([0, 1, 2, 3, 4, 5].map(mint))
    const { url, exited } = await startCrashingChain({ dataDir, step, reach })
    const answered: Hex[] = []
    for (const raw of url === undefined ? [] : raws) {
      const answer = await rpc(url!, 'eth_sendRawTransaction', raw).catch(() => undefined)
      if (answer === undefined) break
      assert.equal(answer.error, undefined)
      answered.push(answer.result as Hex)
    }
    await exited

    // Everything that was acknowledged is there. Everything is sent again, as a careful sender does, and counts once.
    const { url: again } = await startChain(t, { dataDir })
    for (const hash of answered) await publicClient(again).getTransactionReceipt({ hash })
    for (const raw of raws) await rpc(again, 'eth_sendRawTransaction', raw)
    assert.equal(await usdcBalance(again, bob.address), BigInt(raws.length))
    assert.equal(await publicClient(again).getTransactionCount({ address: relayer.address }), raws.length)
  })
}

test('a torn last line is dropped, and later lines are kept', async (t) => {
  const dataDir = await temporaryFolder(t)
  const path = join(dataDir, 'chain.journal')
  const first = await startChain(t, { dataDir })
  for (const nonce of [0, 1, 2]) await rpc(first.url, 'eth_sendRawTransaction', await mint(nonce))
  const before = await history(first.url)
  await first.close()

  const bytes = await readFile(path)
  await writeFile(path, bytes.subarray(0, bytes.length - 20))
  const second = await startChain(t, { dataDir })
  assert.deepEqual(await history(second.url), before.slice(0, -1))
  await rpc(second.url, 'eth_sendRawTransaction', await mint(2))
  await second.close()
  assert.equal(await usdcBalance((await startChain(t, { dataDir })).url, bob.address), 3n)
})

test('while the journal is replayed the chain answers what it can, lets the rest wait, and says how far it is', async (t) => {
  const dataDir = await temporaryFolder(t)
  const first = await startChain(t, { dataDir })
  await first.admin.mine(300)
  const last = await publicClient(first.url).getBlockNumber()
  await first.close()

  const second = await startChain(t, { dataDir })
  assert.equal(second.progress().state, 'replaying')
  const waiting = publicClient(second.url).getBlockNumber()
  assert.equal(await publicClient(second.url).getChainId(), chainId)
  assert.equal(await waiting, last)
  assert.equal(second.progress().state, 'ready')
  assert.equal((await rpc(second.url, 'eth_syncing')).result, false)
  await second.close()

  const chain = await Chain.open(chainOptions(dataDir))
  const syncing = (await chainMethods(chain).get('eth_syncing')!([])) as { currentBlock: Hex }
  assert.equal(syncing.currentBlock, '0x0')
  await assert.rejects(chain.read('eth_blockNumber'), /still replaying its journal \(\d+ of \d+ bytes\)/)
  await chain.close()
})

test('a chain that is closed in the middle of its replay is the same when it is opened again', async (t) => {
  const dataDir = await temporaryFolder(t)
  const first = await startChain(t, { dataDir })
  await first.admin.mine(200)
  const before = await history(first.url)
  await first.close()
  await (await startChain(t, { dataDir })).close()
  assert.deepEqual(await history((await startChain(t, { dataDir })).url), before)
})

test('a damaged journal is never replayed around its damage', async (t) => {
  const dataDir = await temporaryFolder(t)
  const path = join(dataDir, 'chain.journal')
  const first = await startChain(t, { dataDir })
  for (const nonce of [0, 1, 2]) await rpc(first.url, 'eth_sendRawTransaction', await mint(nonce))
  await first.close()
  const lines = (await readFile(path, 'utf8')).split('\n')

  // A byte of an entry in the middle is changed.
  await writeFile(path, lines.with(3, lines[3]!.replace('"time":1', '"time":2')).join('\n'))
  assert.match((await failureOf(t, dataDir)).message, /is damaged after byte \d+/)

  // An entry is removed, with every checksum right.
  await writeFile(path, lines.toSpliced(3, 1).join('\n'))
  assert.match((await failureOf(t, dataDir)).message, /Entry 3 of the chain's journal does not follow block/)

  // An entry is changed, and its checksum with it.
  const forged = lines[3]!.slice(9).replace('"time":1', '"time":2')
  await writeFile(path, lines.with(3, `${crc32(forged).toString(16).padStart(8, '0')} ${forged}`).join('\n'))
  assert.match((await failureOf(t, dataDir)).message, /Entry 4 of the chain's journal does not follow block/)

  await writeFile(path, lines.join('\n'))
  assert.equal(await usdcBalance((await startChain(t, { dataDir })).url, bob.address), 3n)
})

test('a chain that cannot write its journal stops, and says so', async (t) => {
  const dataDir = await temporaryFolder(t)
  const failures: Error[] = []
  const { url, ready } = await startChain(t, { dataDir, onFailure: (error) => failures.push(error) })
  await ready
  await rpc(url, 'eth_sendRawTransaction', await mint(0))
  const before = await history(url)

  // Another process writes to the same file.
  await appendFile(join(dataDir, 'chain.journal'), 'not ours\n')
  for (const nonce of [1, 1]) assert.ok((await rpc(url, 'eth_sendRawTransaction', await mint(nonce))).error)
  assert.equal(failures.length, 1)
  assert.match(failures[0]!.message, /Another process writes/)
  assert.match((await rpc(url, 'eth_blockNumber')).error?.message ?? '', /The chain has stopped/)
  assert.ok((await rpc(url, 'eth_syncing')).result, 'it does not say that it is ready')

  // The restart that the failure requires finds everything that was acknowledged.
  const again = await startChain(t, { dataDir })
  assert.deepEqual(await history(again.url), before)
})

test('the journal of another chain is refused', async (t) => {
  const dataDir = await temporaryFolder(t)
  await (await startChain(t, { dataDir })).close()
  await assert.rejects(startChain(t, { dataDir, chainId: 1337 }), /its journal is of chain 5042002, not 1337/)
})

test('a chain keeps the contracts it was founded with, and says when they are not the newest', async (t) => {
  const dataDir = await temporaryFolder(t)
  const first = await startChain(t, { dataDir })
  assert.equal(first.contractsAreCurrent, true)
  await first.ready
  await first.close()
  const newest = { ...contracts(), gateway: { creationCode: '0x600160015560006000f3' as const } }
  const second = await startChain(t, { dataDir, contracts: newest })
  assert.equal(second.contractsAreCurrent, false)
  assert.deepEqual(second.addresses, first.addresses)
})

test('contracts that cannot be deployed found no chain', async (t) => {
  const dataDir = await temporaryFolder(t)
  const broken = { ...contracts(), gateway: { creationCode: '0x60006000fd' as const } }
  const failure = await failureOf(t, dataDir, { contracts: broken })
  assert.match(failure.message, /cannot be founded/)

  // Nothing is left of it that could block a corrected start.
  const { ready } = await startChain(t, { dataDir })
  await ready
})

/** Transfers, failures, refusals, gas, blocks, time, deposits; interleaved with typical client reads. */
async function liveThrough(
  { url, admin, addresses }: ChainServer,
  clock: { ms: number },
  count: number,
): Promise<void> {
  await admin.giveUsdc(alice.address, 1_000_000n)
  const approve = { abi: devUsdcAbi, functionName: 'approve', args: [addresses.gateway, 1_000_000n] } as const
  await rpc(url, 'eth_sendRawTransaction', await signCall(alice, 0, usdc, encodeFunctionData(approve)))
  const deposit = { abi: settlementGatewayAbi, functionName: 'deposit', args: [usdc, 3n] } as const
  for (let nonce = 1; nonce < count; nonce += 1) {
    clock.ms += (nonce % 5) * 700
    if (nonce % 50 === 7) clock.ms -= 10_000
    const value = nonce % 11 === 0 ? 10n ** 12n : 1n
    const raw =
      nonce % 7 === 0
        ? await signCall(alice, nonce, addresses.gateway, encodeFunctionData(deposit))
        : await signTransfer(alice, nonce, bob.address, value)
    await rpc(url, 'eth_sendRawTransaction', raw)
    if (nonce % 13 === 0) await rpc(url, 'eth_sendRawTransaction', raw)
    if (nonce % 60 === 0) await admin.mine(2)
    if (nonce % 90 === 0) await admin.giveUsdc(bob.address, 1_000n)
    if (nonce % 150 === 0) await admin.advanceTime(3_600)
    if (nonce % 9 === 0) await askAround(url)
  }
}

async function askAround(url: string): Promise<void> {
  const call = { from: alice.address, to: usdc, data: '0x18160ddd' }
  await rpc(url, 'eth_call', call, 'latest')
  await rpc(url, 'eth_estimateGas', call)
  await rpc(url, 'eth_getBlockByNumber', 'pending', true)
  await rpc(url, 'eth_newBlockFilter')
  await rpc(url, 'eth_gasPrice')
}

/** Everything that a client can read about the past, and the current balances. */
async function everything(url: string) {
  const blocks = await history(url)
  const hashes = blocks.flatMap(({ transactions }) => transactions.map((hash) => [hash]))
  const receipts = await rpcAll(url, 'eth_getTransactionReceipt', hashes)
  const logs = (await rpc(url, 'eth_getLogs', { fromBlock: '0x0', toBlock: 'latest' })).result
  const balances = await Promise.all(
    [alice, bob, relayer].map(async ({ address }) => [
      await usdcBalance(url, address),
      await publicClient(url).getBalance({ address }),
    ]),
  )
  return { blocks, receipts, logs, balances }
}

/** Test USDC for Bob by a transaction of the relayer, which has its own gas. */
async function mint(nonce: number): Promise<Hex> {
  const data = encodeFunctionData({ abi: devUsdcAbi, functionName: 'faucet', args: [bob.address, 1n] })
  return signCall(relayer, nonce, usdc, data)
}

async function failureOf(t: TestContext, dataDir: string, options = {}): Promise<Error> {
  const { promise, resolve } = Promise.withResolvers<Error>()
  const server = await startChain(t, { dataDir, onFailure: resolve, ...options })
  const failure = await server.ready.then(
    () => new Error('nothing failed'),
    () => promise,
  )
  await server.close()
  return failure
}

function chainOptions(dataDir: string) {
  return {
    dataDir,
    chainId,
    contracts: contracts(),
    gasHolders: [],
    clock: Date.now,
    onFailure: () => {},
    onStep: () => {},
  }
}
