import assert from 'node:assert/strict'
import { type TestContext, test } from 'node:test'
import {
  concat,
  encodeFunctionData,
  getAddress,
  getContractAddress,
  type Hex,
  numberToHex,
  pad,
  parseEventLogs,
  size,
} from 'viem'
import type { PrivateKeyAccount } from 'viem/accounts'
import { devUsdcAbi } from '../../contracts/generated/DevUsdc.abi.ts'
import { settlementGatewayAbi } from '../../contracts/generated/SettlementGateway.abi.ts'
import {
  account,
  chainId,
  publicClient,
  relayer,
  rpc,
  startChain,
  systemLog,
  temporaryFolder,
  usdc,
  usdcBalance,
} from '../../test/support/sandbox-chain.ts'
import { founderAccount } from './founding.ts'
import type { ChainServer } from './server.ts'

const [alice, bob, carol] = [account('alice'), account('bob'), account('carol')]
const zero = pad('0x0', { size: 20 })
const atomic = 10n ** 12n
/** Forwards what it is sent to the address in its first word. */
const forwarder = '0x5f5f5f5f345f355af100'
/** Reverts if the forwarding does. */
const strictForwarder = '0x5f5f5f5f345f355af1600f575f5ffd5b00'
/** Destroys itself in favour of the address in its first word. */
const bomb = '0x5f35ff'
/** Sends one atomic unit to each address in its input. */
const disperser = '0x5f5b5f5f5f5f64e8d4a5100085355af15060200136811060015700'
type Call = { readonly to?: Hex; readonly data?: Hex; readonly value?: bigint }

test('coin and token are one balance: each kind of transfer changes both views, and gas is paid from it', async (t) => {
  const chain = await openChain(t)
  const before = await balance(chain, alice.address)
  const sent = await send(chain, alice, { to: bob.address, value: 1_500_000n * atomic })
  assert.deepEqual(await views(chain, bob.address), [1_500_000n * atomic, 1_500_000n])
  assert.equal(await balance(chain, alice.address), before - 1_500_000n * atomic - sent.gasWei)
  assert.deepEqual(sent.transfers, [[systemLog, alice.address, bob.address, 1_500_000n * atomic]])

  const moved = await transfer(chain, alice, carol.address, 250_000n)
  assert.deepEqual(await views(chain, carol.address), [250_000n * atomic, 250_000n])
  assert.equal(await balance(chain, alice.address), before - 1_750_000n * atomic - sent.gasWei - moved.gasWei)
  assert.deepEqual(moved.transfers, [
    [systemLog, alice.address, carol.address, 250_000n * atomic],
    [usdc, alice.address, carol.address, 250_000n],
  ])
  await assertConserved(chain)
})

test('what is below 0.000001 waits in the balance until it adds up', async (t) => {
  const chain = await openChain(t)
  for (const total of [600_000_000_000n, 1_200_000_000_000n]) {
    await send(chain, alice, { to: bob.address, value: 600_000_000_000n })
    assert.deepEqual(await views(chain, bob.address), [total, total / atomic])
  }
})

test('a transfer to oneself moves nothing and the system logs nothing', async (t) => {
  const chain = await openChain(t)
  const before = await balance(chain, alice.address)
  const sent = await send(chain, alice, { to: alice.address, value: 5n })
  assert.deepEqual(sent.transfers, [])
  const moved = await transfer(chain, alice, alice.address, 5n)
  assert.deepEqual(moved.transfers, [[usdc, alice.address, alice.address, 5n]])
  assert.equal(await balance(chain, alice.address), before - sent.gasWei - moved.gasWei)
})

test('contracts pay too: an endowment, an inner call and a self-destruction are logged in order', async (t) => {
  const chain = await openChain(t)
  const created = await send(chain, alice, { data: '0x00', value: 7n * atomic })
  assert.deepEqual(created.transfers, [[systemLog, alice.address, created.address, 7n * atomic]])
  assert.deepEqual(await views(chain, created.address), [7n * atomic, 7n])

  for (const [code, to] of [
    [forwarder, bob.address],
    [bomb, carol.address],
  ] as const) {
    const { address } = await send(chain, alice, { data: deployed(code) })
    const paid = await send(chain, alice, { to: address, data: pad(to), value: 3n * atomic })
    assert.deepEqual(paid.transfers, [
      [systemLog, alice.address, address, 3n * atomic],
      [systemLog, address, to, 3n * atomic],
    ])
    assert.deepEqual(await views(chain, to), [3n * atomic, 3n])
    assert.deepEqual(await views(chain, address), [0n, 0n])
  }
  await assertConserved(chain)
})

test('500 transfers in one block have 500 logs, found by range, address and topic', async (t) => {
  const chain = await openChain(t)
  const { address } = await send(chain, alice, { data: deployed(disperser) })
  const payees = Array.from({ length: 500 }, (_, index) =>
    getAddress(numberToHex(2n ** 100n + BigInt(index), { size: 20 })),
  )
  const pay = (to: readonly Hex[]) => {
    return send(chain, alice, {
      to: address,
      data: concat(to.map((one) => pad(one))),
      value: BigInt(to.length) * atomic,
    })
  }
  // A new account costs gas: 500 of them exceed what one transaction may use.
  await pay(payees.slice(0, 250))
  await pay(payees.slice(250))
  const batch = await pay(payees)
  assert.deepEqual(
    batch.transfers,
    [[systemLog, alice.address, address, 500n * atomic]].concat(
      payees.map((to) => [systemLog, address, to, atomic] as never),
    ),
  )
  for (const to of [payees[0]!, payees[499]!]) assert.deepEqual(await views(chain, to), [2n * atomic, 2n])

  const range = { fromBlock: batch.block, toBlock: 'latest' }
  const count = async (filter: object) => ((await rpc(chain.url, 'eth_getLogs', filter)).result as unknown[]).length
  const topics = (to: Hex) => [null, null, [pad(to), pad(bob.address)]]
  assert.equal(await count({ ...range, address: systemLog.toUpperCase().replace('0X', '0x') }), 501)
  assert.equal(await count({ ...range, address: [usdc] }), 0)
  assert.equal(await count({ ...range, topics: topics(payees[7]!) }), 1)
  assert.equal(await count({ fromBlock: 'earliest', topics: topics(payees[7]!) }), 2)
  assert.equal(await count({ blockHash: batch.blockHash }), 501)
})

test('a blocked address neither sends nor receives coin, and the zero address receives none', async (t) => {
  const chain = await openChain(t)
  await send(chain, alice, { to: bob.address, value: 10n ** 18n })
  const { address } = await send(chain, alice, { data: deployed(strictForwarder) })
  await block(chain, 'blacklist')
  const coin = { value: numberToHex(5n) }
  const refused = { code: -32000, message: 'Blocked address' }
  const before = await balance(chain, bob.address)
  await assert.rejects(send(chain, alice, { to: bob.address, value: 5n }), /Blocked address/)
  await assert.rejects(send(chain, bob, { to: alice.address }), /Blocked address/)
  const tries = [
    { from: alice.address, to: bob.address, ...coin },
    { from: bob.address, to: alice.address },
  ]
  for (const call of tries) assert.deepEqual((await rpc(chain.url, 'eth_estimateGas', call)).error, refused)

  // An inner call, and a send to the zero address, revert. They cost gas and change nothing else.
  for (const call of [{ to: address, data: pad(bob.address) }, { to: zero }]) {
    const aliceBefore = await balance(chain, alice.address)
    const reverted = await send(chain, alice, { ...call, value: 5n }, 'reverted')
    assert.deepEqual(reverted.transfers, [])
    assert.equal(await balance(chain, alice.address), aliceBefore - reverted.gasWei)
  }
  assert.equal((await rpc(chain.url, 'eth_call', { from: alice.address, to: zero, ...coin })).error?.code, 3)
  assert.equal((await transfer(chain, alice, bob.address, 1n, 'reverted')).transfers.length, 0)
  assert.equal(await balance(chain, bob.address), before)

  await block(chain, 'unBlacklist')
  await send(chain, alice, { to: address, data: pad(bob.address), value: 5n })
  assert.equal(await balance(chain, bob.address), before + 5n)
  await assertConserved(chain)
})

test('the faucet of the token mints: a transfer from the zero address', async (t) => {
  const chain = await openChain(t)
  const data = encodeFunctionData({ abi: devUsdcAbi, functionName: 'faucet', args: [bob.address, 9n] })
  const minted = await send(chain, alice, { to: usdc, data })
  assert.deepEqual(minted.transfers, [
    [systemLog, zero, bob.address, 9n * atomic],
    [usdc, zero, bob.address, 9n],
  ])
  assert.deepEqual(await views(chain, bob.address), [9n * atomic, 9n])
  await assertConserved(chain, 9n * atomic)
})

test('a contract holds what the gateway holds: deposits are coin, and a withdrawal pays coin', async (t) => {
  const chain = await openChain(t)
  const gateway = chain.addresses.gateway
  const approve = { abi: devUsdcAbi, functionName: 'approve', args: [gateway, 1_000n] } as const
  await send(chain, alice, { to: usdc, data: encodeFunctionData(approve) })
  const call = async (functionName: 'deposit' | 'initiateWithdrawal') => {
    const data = encodeFunctionData({ abi: settlementGatewayAbi, functionName, args: [usdc, 1_000n] })
    return send(chain, alice, { to: gateway, data })
  }
  const deposit = await call('deposit')
  assert.deepEqual(await views(chain, gateway), [1_000n * atomic, 1_000n])
  assert.deepEqual(deposit.transfers[0], [systemLog, alice.address, gateway, 1_000n * atomic])
  await call('initiateWithdrawal')
  await chain.admin.mine(5)
  const withdraw = encodeFunctionData({ abi: settlementGatewayAbi, functionName: 'withdraw', args: [usdc] })
  await send(chain, alice, { to: gateway, data: withdraw })
  assert.deepEqual(await views(chain, gateway), [0n, 0n])
  await assertConserved(chain)
})

test('the same money is not spent twice, by the token and as coin, in one transaction', async (t) => {
  const chain = await openChain(t)
  // Sends a unit by the token to the address in its first word, and its whole coin there too.
  const transferCall = `63a9059cbb60e01b5f525f35600452600160245260205f60445f5f73${usdc.slice(2)}5af150`
  const { address } = await send(chain, alice, { data: deployed(`0x${transferCall}5f5f5f5f475f355af100`) })
  await send(chain, alice, { to: address, data: pad(bob.address), value: atomic }, 'reverted')
  assert.deepEqual(await views(chain, bob.address), [0n, 0n])
})

test('a restart gives the same logs, balances and blocked addresses', async (t) => {
  const dataDir = await temporaryFolder(t)
  const first = await openChain(t, dataDir)
  await send(first, alice, { to: bob.address, value: 5n * atomic })
  await send(first, alice, { to: zero, value: 5n }, 'reverted')
  await block(first, 'blacklist')
  const read = async ({ url }: ChainServer) => ({
    logs: (await rpc(url, 'eth_getLogs', { fromBlock: 'earliest' })).result,
    block: (await rpc(url, 'eth_getBlockByNumber', 'latest', true)).result,
    bob: (await rpc(url, 'eth_getBalance', bob.address, 'latest')).result,
  })
  const before = await read(first)
  await first.close()
  const second = await startChain(t, { dataDir })
  assert.deepEqual(await read(second), before)
  await assert.rejects(send(second, alice, { to: bob.address, value: 5n }), /Blocked address/)
})

async function openChain(t: TestContext, dataDir?: string): Promise<ChainServer> {
  const chain = await startChain(t, dataDir === undefined ? {} : { dataDir })
  await chain.admin.giveUsdc(alice.address, 100_000_000n)
  return chain
}

/** Sends a transaction and reads what came of it. Transfers are [logged by, from, to, value]. */
async function send({ url }: ChainServer, from: PrivateKeyAccount, call: Call, status = 'success') {
  const client = publicClient(url)
  const nonce = await client.getTransactionCount({ address: from.address })
  const fees = { gas: 16_000_000n, maxFeePerGas: 20_000_000_000n, maxPriorityFeePerGas: 0n }
  const raw = await from.signTransaction({ type: 'eip1559', chainId, nonce, ...fees, ...call })
  const { result: hash, error } = await rpc(url, 'eth_sendRawTransaction', raw)
  if (error !== undefined) throw new Error(error.message)
  const receipt = await client.getTransactionReceipt({ hash: hash as Hex })
  assert.equal(receipt.status, status)
  assert.deepEqual(
    receipt.logs.map(({ logIndex }) => logIndex),
    [...receipt.logs.keys()],
  )
  const transfers = parseEventLogs({ abi: devUsdcAbi, eventName: 'Transfer', logs: receipt.logs })
  return {
    gasWei: receipt.gasUsed * receipt.effectiveGasPrice,
    address: getContractAddress({ from: from.address, nonce: BigInt(nonce) }),
    block: numberToHex(receipt.blockNumber),
    blockHash: receipt.blockHash,
    transfers: transfers.map(({ address, args }) => [address, args.from, args.to, args.value]),
  }
}

function transfer(chain: ChainServer, from: PrivateKeyAccount, to: Hex, value: bigint, status?: string) {
  const data = encodeFunctionData({ abi: devUsdcAbi, functionName: 'transfer', args: [to, value] })
  return send(chain, from, { to: usdc, data }, status)
}

function block(chain: ChainServer, functionName: 'blacklist' | 'unBlacklist') {
  return send(chain, relayer, {
    to: usdc,
    data: encodeFunctionData({ abi: devUsdcAbi, functionName, args: [bob.address] }),
  })
}

/** Creation code for this code. */
function deployed(code: Hex): Hex {
  return concat(['0x60', numberToHex(size(code), { size: 1 }), '0x8060093d393df3', code])
}

function balance({ url }: ChainServer, address: Hex): Promise<bigint> {
  return publicClient(url).getBalance({ address })
}

/** The balance in 18 decimals and in 6. */
async function views(chain: ChainServer, address: Hex): Promise<[bigint, bigint]> {
  return [await balance(chain, address), await usdcBalance(chain.url, address)]
}

/** All coin is what the chain began with and what was minted: gas is paid to the beneficiary, nothing is lost. */
async function assertConserved(chain: ChainServer, minted = 0n): Promise<void> {
  const logs = (await rpc(chain.url, 'eth_getLogs', { fromBlock: 'earliest', address: systemLog })).result
  const touched = (logs as { topics: Hex[] }[]).flatMap(({ topics }) =>
    topics.slice(1).map((topic) => `0x${topic.slice(26)}`),
  )
  const { miner } = (await rpc(chain.url, 'eth_getBlockByNumber', 'latest', false)).result as { miner: Hex }
  const all = new Set([...touched, miner, founderAccount().address.toLowerCase(), relayer.address.toLowerCase()])
  const balances = await Promise.all([...all].map((address) => balance(chain, address as Hex)))
  assert.equal(
    balances.reduce((sum, one) => sum + one),
    10n ** 30n + minted,
  )
}
