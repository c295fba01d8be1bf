import assert from 'node:assert/strict'
import { statSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import { test } from 'node:test'
import fc from 'fast-check'
import { BaseError, decodeErrorResult, encodeFunctionData, type Hex, parseEventLogs, toHex } from 'viem'
import { devUsdcAbi } from '../../contracts/generated/DevUsdc.abi.ts'
import { settlementGatewayAbi } from '../../contracts/generated/SettlementGateway.abi.ts'
import {
  account,
  chainId,
  history,
  post,
  publicClient,
  relayer,
  rpc,
  signCall,
  signTransfer,
  startChain,
  systemLog,
  temporaryFolder,
  usdc,
  usdcBalance,
  walletClient,
  withdrawalDelay,
} from '../../test/support/sandbox-chain.ts'

const gwei = 10n ** 9n
const [alice, bob] = [account('alice'), account('bob')]

test('an ordinary wallet with USDC from the faucet pays another', async (t) => {
  const { url, admin } = await startChain(t)
  await admin.giveUsdc(alice.address, 5_000_000n)

  // Uses the wallet's defaults: it queries nonce, fees and gas itself.
  const call = { address: usdc, abi: devUsdcAbi, functionName: 'transfer', args: [bob.address, 1_250_000n] } as const
  const hash = await walletClient(url, alice).writeContract(call)
  const receipt = await publicClient(url).waitForTransactionReceipt({ hash })
  assert.equal(receipt.status, 'success')
  const gasAtomic = (receipt.gasUsed * receipt.effectiveGasPrice) / 10n ** 12n
  assert.equal(await usdcBalance(url, alice.address), 3_750_000n - gasAtomic - 1n, 'part of a unit is left')
  assert.equal(await usdcBalance(url, bob.address), 1_250_000n)
})

// A trap on Arc: a client that listens to both kinds of events credits every deposit twice.
test('a transfer is logged twice: by the token in 6 decimals, by the system in 18', async (t) => {
  const { url, admin } = await startChain(t)
  const { transactionHash } = await admin.giveUsdc(alice.address, 7n)
  const { logs } = await publicClient(url).getTransactionReceipt({ hash: transactionHash })
  const transfers = parseEventLogs({ abi: devUsdcAbi, eventName: 'Transfer', logs })
  assert.deepEqual(
    transfers.map(({ address, args }) => [address, args.to, args.value]),
    [
      [systemLog, alice.address, 7n * 10n ** 12n],
      [usdc, alice.address, 7n],
    ],
  )
})

test('the token at Arc’s address takes what was signed for Arc’s token', async (t) => {
  const { url, admin } = await startChain(t)
  const token = { address: usdc, abi: devUsdcAbi } as const
  const client = publicClient(url)
  assert.equal(
    await client.readContract({ ...token, functionName: 'DOMAIN_SEPARATOR' }),
    // Arc testnet's value, as its own token computes it.
    '0x361191522483d32a83e70ae7183b4b9629442c13a78bc9921d6f707911c8c6b0',
  )
  assert.equal(await client.readContract({ ...token, functionName: 'decimals' }), 6)

  await admin.giveUsdc(alice.address, 1_000n)
  const signed = await authorize('USDC', '2', usdc, { to: bob.address, value: 900n, nonce: toHex(1, { size: 32 }) })
  const call = { ...token, functionName: 'transferWithAuthorization', args: signed } as const
  await client.waitForTransactionReceipt({ hash: await walletClient(url, relayer).writeContract(call) })
  assert.equal(await usdcBalance(url, bob.address), 900n)
})

test('the relayer has gas from the first start, and sweeps a deposit into the gateway', async (t) => {
  const { url, admin, addresses } = await startChain(t)
  await admin.giveUsdc(alice.address, 1_000n)
  const authorization = { to: addresses.gateway, value: 1_000n, nonce: toHex(1, { size: 32 }) }
  const signed = await authorize('USDC', '2', usdc, authorization, 'ReceiveWithAuthorization')
  const gateway = { address: addresses.gateway, abi: settlementGatewayAbi } as const
  const call = { ...gateway, functionName: 'depositWithAuthorization', args: [usdc, ...dropPayee(signed)] } as const
  const hash = await walletClient(url, relayer).writeContract(call)
  assert.equal((await publicClient(url).waitForTransactionReceipt({ hash })).status, 'success')
  const available = { ...gateway, functionName: 'availableBalance', args: [usdc, alice.address] } as const
  assert.equal(await publicClient(url).readContract(available), 1_000n)
})

test('the gateway has the same address in every sandbox', async (t) => {
  const first = await startChain(t)
  const second = await startChain(t, { gasHolders: [] })
  assert.equal(first.addresses.gateway, second.addresses.gateway)
  await Promise.all([first.ready, second.ready])
})

test('gas costs 20 gwei in every block and in every response about its price', async (t) => {
  const { url, admin } = await startChain(t)
  await admin.giveUsdc(alice.address, 100n)
  const client = publicClient(url)
  await admin.mine(20)
  for (let nonce = 0; nonce < 5; nonce += 1) {
    await rpc(url, 'eth_sendRawTransaction', await signTransfer(alice, nonce, bob.address, 1n))
    // Refused ones in between must not change the price either.
    await rpc(url, 'eth_sendRawTransaction', await signTransfer(alice, nonce, bob.address, 1n))
  }
  const last = await client.getBlockNumber()
  for (let blockNumber = 1n; blockNumber <= last; blockNumber += 1n) {
    assert.equal((await client.getBlock({ blockNumber })).baseFeePerGas, 20n * gwei)
  }
  assert.equal((await client.getBlock({ blockTag: 'pending' })).baseFeePerGas, 20n * gwei)
  const fees = await client.getFeeHistory({ blockCount: 4, rewardPercentiles: [] })
  assert.deepEqual([...new Set(fees.baseFeePerGas)], [20n * gwei])
  assert.ok((await client.getGasPrice()) >= 20n * gwei, 'a wallet that pays the price it is told is not refused')
})

test('gas is given again only when half of it is used: a start that needs none writes nothing down', async (t) => {
  const dataDir = await temporaryFolder(t)
  const { url, admin } = await startChain(t, { dataDir })
  const journal = () => statSync(join(dataDir, 'chain.journal')).size
  await admin.keepGas(alice.address, 1_000_000n)
  const before = journal()
  for (let start = 0; start < 3; start += 1) await admin.keepGas(alice.address, 1_000_000n)
  assert.equal(journal(), before)
  await walletClient(url, alice).sendTransaction({ to: bob.address, value: 6n * 10n ** 17n })
  await admin.keepGas(alice.address, 1_000_000n)
  assert.ok((await publicClient(url).getBalance({ address: alice.address })) >= 10n ** 18n)
})

test('gas is paid in native USDC of 18 decimals', async (t) => {
  const { url, admin } = await startChain(t)
  await admin.giveUsdc(alice.address, 2_000_000n)
  const client = publicClient(url)
  assert.equal(await client.getBalance({ address: alice.address }), 2n * 10n ** 18n)
  const hash = await walletClient(url, alice).sendTransaction({ to: bob.address, value: 10n ** 18n })
  const { gasUsed, effectiveGasPrice } = await client.waitForTransactionReceipt({ hash })
  assert.equal(await client.getBalance({ address: alice.address }), 10n ** 18n - gasUsed * effectiveGasPrice)
})

test('time never goes backwards, whatever the machine’s clock does', async (t) => {
  const clock = { ms: Date.UTC(2026, 10, 15) }
  const { url, admin } = await startChain(t, { clock: () => clock.ms })
  await admin.giveUsdc(alice.address, 100n)
  for (const jump of [0, 5_000, -3_600_000, 400, 3_700_000, -86_400_000, 1_000]) {
    clock.ms += jump
    await admin.giveUsdc(bob.address, 1n)
  }
  const times = (await history(url)).map(({ time }) => time)
  assert.deepEqual(
    times,
    times.toSorted((one, other) => one - other),
  )
  assert.equal(times.at(-1), Date.UTC(2026, 10, 15, 0, 1, 45) / 1000, 'the latest time that was ever seen')
})

// Arc mines twice a second. Here the last block may be hours old, and an authorization made since then would look too early.
test('a call uses the current time, even if the last block is old', async (t) => {
  const clock = { ms: Date.UTC(2026, 10, 15) }
  const { url, admin } = await startChain(t, { clock: () => clock.ms })
  await admin.giveUsdc(alice.address, 100n)
  const nonce = toHex(1, { size: 32 })
  clock.ms += 5 * 3_600_000
  const signed = await authorize('USDC', '2', usdc, { to: bob.address, value: 1n, nonce, now: clock.ms / 1000 })
  const call = { address: usdc, abi: devUsdcAbi, functionName: 'transferWithAuthorization', args: signed } as const
  await publicClient(url).simulateContract({ ...call, account: relayer })
  await publicClient(url).estimateContractGas({ ...call, account: relayer })

  // Also after a refused transaction, which has set a time that no block used.
  assert.ok((await rpc(url, 'eth_sendRawTransaction', await signTransfer(alice, 99, bob.address, 1n))).error)
  clock.ms += 9 * 86_400_000
  await assert.rejects(
    publicClient(url).simulateContract({ ...call, account: relayer }),
    /ERC3009InvalidAuthorizationTime/,
  )
})

test('the chain’s clock can be moved forward permanently', async (t) => {
  const clock = { ms: Date.UTC(2026, 10, 15) }
  const dataDir = await temporaryFolder(t)
  const first = await startChain(t, { dataDir, clock: () => clock.ms })
  await first.ready
  await first.admin.advanceTime(86_400)
  await first.close()
  const { url, admin } = await startChain(t, { dataDir, clock: () => clock.ms })
  await publicClient(url).getBlockNumber()
  await admin.mine(1)
  assert.equal((await publicClient(url).getBlock()).timestamp, BigInt(Date.UTC(2026, 10, 16) / 1000))
})

test('the trustless exit opens after its number of blocks', async (t) => {
  const { url, admin, addresses } = await startChain(t)
  await admin.giveUsdc(alice.address, 1_000_000n)
  const client = publicClient(url)
  const wallet = walletClient(url, alice)
  const gateway = { address: addresses.gateway, abi: settlementGatewayAbi } as const
  await wallet.writeContract({
    address: usdc,
    abi: devUsdcAbi,
    functionName: 'approve',
    args: [addresses.gateway, 1_000n],
  })
  await wallet.writeContract({ ...gateway, functionName: 'deposit', args: [usdc, 1_000n] })
  await wallet.writeContract({ ...gateway, functionName: 'initiateWithdrawal', args: [usdc, 1_000n] })
  const withdraw = { ...gateway, functionName: 'withdraw', args: [usdc], account: alice } as const
  await assert.rejects(client.simulateContract(withdraw), /WithdrawalTooEarly/)
  await admin.mine(Number(withdrawalDelay))
  const before = await usdcBalance(url, addresses.gateway)
  await wallet.writeContract(withdraw)
  assert.equal(before - (await usdcBalance(url, addresses.gateway)), 1_000n)
})

test('concurrent transactions are mined one by one, for each sender in the order of its nonces', async (t) => {
  const { url, admin } = await startChain(t)
  const senders = ['one', 'two', 'three', 'four', 'five'].map(account)
  for (const { address } of senders) await admin.giveUsdc(address, 1_000_000n)
  const before = await publicClient(url).getBlockNumber()
  const sendAll = async (sender: (typeof senders)[number]) => {
    for (let nonce = 0; nonce < 20; nonce += 1) {
      const { error } = await rpc(url, 'eth_sendRawTransaction', await signTransfer(sender, nonce, bob.address, 1n))
      assert.equal(error, undefined)
    }
  }
  await Promise.all(senders.map(sendAll))
  const blocks = (await history(url)).slice(Number(before) + 1)
  assert.equal(blocks.length, 100)
  assert.ok(blocks.every(({ transactions }) => transactions.length === 1))
  assert.equal(await usdcBalance(url, bob.address), 100n)
})

test('a batch is sent in its order', async (t) => {
  const { url, admin } = await startChain(t)
  await admin.giveUsdc(alice.address, 1_000_000n)
  const raws = await Promise.all([0, 1, 2, 3].map((nonce) => signTransfer(alice, nonce, bob.address, 1n)))
  const requests = raws.map((raw, id) => ({ jsonrpc: '2.0', id, method: 'eth_sendRawTransaction', params: [raw] }))
  const { answer } = await post(url, JSON.stringify(requests))
  const answers = answer as { id: number; result: Hex }[]
  assert.deepEqual(
    answers.map(({ id }) => id),
    [0, 1, 2, 3],
  )
  assert.ok(answers.every(({ result }) => result.length === 66))
})

test('a transaction that reverts is mined and says so; a call that would revert says why', async (t) => {
  const { url, admin } = await startChain(t)
  await admin.giveUsdc(alice.address, 1_000_000n)
  const raw = await signTransfer(alice, 0, bob.address, 1_000_000n)
  const { result: hash } = await rpc(url, 'eth_sendRawTransaction', raw)
  const receipt = await publicClient(url).getTransactionReceipt({ hash: hash as Hex })
  assert.equal(receipt.status, 'reverted')

  const data = encodeFunctionData({ abi: devUsdcAbi, functionName: 'transfer', args: [bob.address, 1_000_000n] })
  const { error } = await rpc(url, 'eth_call', { from: alice.address, to: usdc, data }, 'latest')
  assert.equal(error?.code, 3)
  const reason = decodeErrorResult({ abi: devUsdcAbi, data: error?.data as Hex })
  assert.equal(reason.errorName, 'ERC20InsufficientBalance')
})

test('a transaction that cannot be mined is refused in words that wallets know', async (t) => {
  const { url, admin } = await startChain(t)
  await admin.giveUsdc(alice.address, 1_000_000n)
  const sent = await signTransfer(alice, 0, bob.address, 1n)
  assert.equal((await rpc(url, 'eth_sendRawTransaction', sent)).error, undefined)
  const poor = account('poor')
  const cases: [string, Hex, RegExp][] = [
    ['sent twice', sent, /nonce too low/i],
    ['a nonce ahead', await signTransfer(alice, 7, bob.address, 1n), /nonce too high/i],
    ['no gas money', await signTransfer(poor, 0, bob.address, 1n), /enough funds/],
    ['more gas than a transaction may have', await signCall(alice, 1, usdc, '0x', 2n ** 24n + 1n), /gas cap/],
    ['no transaction', '0x1234', /transaction/i],
    ['too large', toHex(new Uint8Array(131_073)), /oversized data/],
  ]
  for (const [what, raw, reason] of cases) {
    const { error } = await rpc(url, 'eth_sendRawTransaction', raw)
    assert.match(error?.message ?? '', reason, what)
  }
  // None of them left anything behind.
  const next = await signTransfer(alice, 1, bob.address, 1n)
  assert.equal((await rpc(url, 'eth_sendRawTransaction', next)).error, undefined)
})

test('no HTTP request can administer the chain', async (t) => {
  const { url, admin, ready } = await startChain(t)
  await ready
  const before = await history(url)
  const forbidden: [string, ...unknown[]][] = [
    ['hardhat_setBalance', alice.address, '0xffffff'],
    ['hardhat_setCode', usdc, '0x00'],
    ['hardhat_setStorageAt', usdc, '0x0', toHex(1, { size: 32 })],
    ['hardhat_impersonateAccount', alice.address],
    ['hardhat_mine', '0x10'],
    ['hardhat_reset'],
    ['hardhat_setNonce', alice.address, '0x5'],
    ['evm_mine'],
    ['evm_revert', '0x1'],
    ['evm_snapshot'],
    ['evm_setNextBlockTimestamp', 4_000_000_000],
    ['evm_increaseTime', 1_000],
    ['evm_setAutomine', false],
    ['debug_traceTransaction', `0x${'00'.repeat(32)}`],
    ['personal_unlockAccount'],
    ['eth_sendTransaction', { from: alice.address, to: bob.address }],
    ['eth_sign', alice.address, '0x00'],
    ['eth_signTypedData_v4', alice.address, {}],
    ['eth_subscribe', 'newHeads'],
    ['giveUsdc', alice.address, '0x1'],
    ['__proto__'],
    ['constructor'],
  ]
  for (const [method, ...params] of forbidden) {
    assert.equal((await rpc(url, method, ...params)).error?.code, -32601, method)
  }
  assert.deepEqual(await history(url), before)
  assert.deepEqual((await rpc(url, 'eth_accounts')).result, [])
  await assert.rejects(admin.mine(0), /must be from 1 to/)
  await assert.rejects(admin.advanceTime(-1), /must be from 1 to/)
})

test('an invalid JSON-RPC request gets a JSON-RPC error, and the chain keeps running', async (t) => {
  const { url, ready } = await startChain(t)
  await ready
  const request = { jsonrpc: '2.0', id: 1, method: 'eth_chainId' }
  const cases: [string, number][] = [
    ['', -32700],
    ['{', -32700],
    ['null', -32600],
    ['42', -32600],
    ['"eth_chainId"', -32600],
    ['[]', -32600],
    ['{}', -32600],
    [JSON.stringify({ ...request, jsonrpc: '1.0' }), -32600],
    [JSON.stringify({ ...request, method: 5 }), -32600],
    [JSON.stringify({ ...request, params: { a: 1 } }), -32602],
    [JSON.stringify({ ...request, method: 'eth_unheardOf' }), -32601],
    [JSON.stringify(Array(101).fill(request)), -32600],
    [JSON.stringify({ ...request, method: 'eth_getBalance', params: ['zzz', 'latest'] }), -32602],
    [JSON.stringify({ ...request, method: 'eth_getBalance', params: [] }), -32602],
    [JSON.stringify({ ...request, method: 'eth_getBlockByNumber', params: ['0x0', 'yes', 3] }), -32602],
    [JSON.stringify({ ...request, method: 'eth_call', params: [] }), -32602],
    [JSON.stringify({ ...request, method: 'eth_getLogs', params: [{ fromBlock: 5 }] }), -32602],
    [JSON.stringify({ ...request, method: 'eth_getLogs', params: ['nonsense'] }), -32602],
    [JSON.stringify({ ...request, method: 'eth_sendRawTransaction', params: [] }), -32602],
    [JSON.stringify({ ...request, method: 'eth_sendRawTransaction', params: [{}] }), -32602],
    [JSON.stringify({ ...request, method: 'eth_sendRawTransaction', params: ['0xabc'] }), -32602],
  ]
  for (const [body, code] of cases) {
    const { status, answer } = await post(url, body)
    assert.equal((answer as { error?: { code: number } }).error?.code, code, body.slice(0, 100))
    assert.equal(status, 200)
  }
  assert.equal(await publicClient(url).getChainId(), chainId)
})

test('no request stops the chain', async (t) => {
  const { url, ready } = await startChain(t)
  await ready
  const bytes = fc.uint8Array({ maxLength: 64 }).map((value) => toHex(value))
  const quantity = fc.oneof(
    fc.nat().map((value) => toHex(value)),
    fc.constantFrom('latest', 'pending', '0x', usdc),
  )
  const value = fc.oneof(quantity, bytes, fc.jsonValue())
  const names = [
    'from',
    'to',
    'data',
    'value',
    'gas',
    'nonce',
    'fromBlock',
    'toBlock',
    'address',
    'topics',
    'blockHash',
  ]
  const param = fc.oneof(value, fc.array(value), fc.dictionary(fc.constantFrom(...names), value))
  const methods = ['eth_call', 'eth_estimateGas', 'eth_getLogs', 'eth_getBalance', 'eth_getStorageAt']
  const others = ['eth_sendRawTransaction', 'eth_getBlockByNumber', 'eth_getProof', 'eth_feeHistory', 'web3_sha3']
  const question = fc.tuple(fc.constantFrom(...methods, ...others), fc.array(param, { maxLength: 4 }))
  await fc.assert(
    fc.asyncProperty(question, async ([method, params]) => {
      const { result, error } = await rpc(url, method, ...params)
      assert.ok(result !== undefined || Number.isInteger(error?.code))
      assert.notEqual(error?.code, -32603, `${error?.message}`)
    }),
    { numRuns: 300 },
  )
})

test('a batch answers each request for itself, and a notification not at all', async (t) => {
  const { url } = await startChain(t)
  const good = { jsonrpc: '2.0', id: 'a', method: 'eth_chainId', params: [] }
  const { answer } = await post(
    url,
    JSON.stringify([good, 7, { ...good, id: undefined }, { ...good, id: null, method: 'x' }]),
  )
  const answers = answer as { id: unknown; result?: unknown; error?: { code: number } }[]
  assert.deepEqual(
    answers.map(({ id, result, error }) => [id, result ?? error?.code]),
    [
      ['a', '0x4cef52'],
      [null, -32600],
      [null, -32601],
    ],
  )
  assert.deepEqual(await post(url, JSON.stringify({ ...good, id: undefined })), { status: 204, answer: undefined })
})

test('a too large body is refused, and an endless one affects no other client', async (t) => {
  const { url, port } = await startChain(t)
  const { status, answer } = await post(url, JSON.stringify({ padding: 'x'.repeat(2 * 1024 * 1024) }))
  assert.equal(status, 413)
  assert.equal((answer as { error: { code: number } }).error.code, -32600)

  const socket = connect(port, '127.0.0.1')
  socket.write('POST / HTTP/1.1\r\nhost: chain\r\ncontent-length: 1000\r\n\r\n{"jsonrpc"')
  await new Promise((resolve) => socket.once('connect', resolve))
  socket.destroy()
  assert.equal((await fetch(url)).status, 405)
  assert.equal(await publicClient(url).getChainId(), chainId)
})

test('any page may ask, as of any public node', async (t) => {
  const { url } = await startChain(t)
  const preflight = await fetch(url, { method: 'OPTIONS' })
  assert.equal(preflight.status, 204)
  assert.equal(preflight.headers.get('access-control-allow-origin'), '*')
})

test('logs of more blocks than Arc’s nodes would search are refused', async (t) => {
  const { url } = await startChain(t)
  const zeros = `0x${'00'.repeat(32)}`
  const { error } = await rpc(url, 'eth_getLogs', { fromBlock: '0x0', toBlock: '0x270f' })
  assert.deepEqual(error, { code: -32012, message: 'exceeds max block range: 10000 of 9999 blocks' })
  // The EVM would visit each of these blocks, for hours.
  for (const blockHash of [undefined, null, zeros]) {
    const { error } = await rpc(url, 'eth_getLogs', { blockHash, toBlock: '0xffffffffffff' })
    assert.equal(error?.code, -32012, `with the hash ${blockHash}`)
  }
  for (const range of [{ fromBlock: '0x0', toBlock: '0x270e' }, { fromBlock: 'earliest' }, {}]) {
    assert.equal((await rpc(url, 'eth_getLogs', range)).error, undefined)
  }
})

test('a call may ask for 30 million gas, as on Arc', async (t) => {
  const { url } = await startChain(t)
  for (const method of ['eth_call', 'eth_estimateGas']) {
    const ask = (gas: number) => rpc(url, method, { from: relayer.address, to: bob.address, gas: toHex(gas) })
    assert.equal((await ask(30_000_000)).error, undefined)
    assert.match((await ask(30_000_001)).error?.message ?? '', /gas limit too high/)
  }
})

test('with the limits of Arc’s public RPC bursts are refused, and backends have different heads', async (t) => {
  const clock = { ms: Date.UTC(2026, 10, 15) }
  const { url, admin, ready } = await startChain(t, { clock: () => clock.ms, isPublic: true })
  await ready
  await admin.giveUsdc(alice.address, 1n)
  const ask = async (method: string, ...params: unknown[]) => {
    clock.ms += 500
    return rpc(url, method, ...params)
  }
  clock.ms += 60_000
  const before = Number((await ask('eth_blockNumber')).result)
  await admin.giveUsdc(alice.address, 1n)

  // Three backends in turn, one and two seconds behind the first. A head that one has is unknown to the next.
  const next = toHex(before + 1)
  assert.equal((await ask('eth_blockNumber')).result, toHex(before), 'a second behind')
  assert.equal((await ask('eth_getBlockByNumber', next, false)).error?.code, -32014, 'two seconds behind')
  assert.equal((await ask('eth_blockNumber')).result, next)
  assert.equal((await ask('eth_getLogs', { fromBlock: next, toBlock: next })).error, undefined)
  assert.equal((await ask('eth_blockNumber')).result, next)

  // One search of logs in two seconds, two calls a second.
  clock.ms += 2_000
  assert.equal((await ask('eth_getLogs', {})).error, undefined)
  assert.equal((await ask('eth_getLogs', {})).error?.code, -32011)
  clock.ms += 2_000
  assert.equal((await ask('eth_getLogs', {})).error, undefined)
  clock.ms += 10_000
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'eth_chainId' })
  const statuses = await Promise.all(
    Array.from({ length: 4 }, async () => {
      const response = await fetch(url, { method: 'POST', body })
      await response.text()
      return response.status
    }),
  )
  assert.deepEqual(statuses.toSorted(), [200, 200, 429, 429])
})

test('the faucet serves concurrent requests and never exceeds its limits', async (t) => {
  const { url, admin, ready } = await startChain(t)
  await ready
  const names = Array.from({ length: 12 }, (_, index) => account(`guest ${index}`).address)
  await Promise.all(names.map((address) => admin.giveUsdc(address, 1_000_000_000_000n)))
  for (const address of names) assert.equal(await usdcBalance(url, address), 1_000_000_000_000n)
  await assert.rejects(admin.giveUsdc(alice.address, 0n), /it gives 0\.000001 to 1000000 USDC per request, not 0\./)
  await assert.rejects(admin.giveUsdc(alice.address, 1_000_000_000_001n), /USDC per request, not 1000000\.000001\./)

  const block = { address: usdc, abi: devUsdcAbi, functionName: 'blacklist', args: [alice.address] } as const
  await walletClient(url, relayer).writeContract(block)
  await assert.rejects(admin.giveUsdc(alice.address, 1n), /reverted/)
  await admin.giveUsdc(bob.address, 1n)
})

test('wallets see the chain’s errors as errors of their own', async (t) => {
  const { url, admin } = await startChain(t)
  await admin.giveUsdc(alice.address, 1n)
  const transfer = walletClient(url, alice).sendTransaction({ to: bob.address, value: 1n, nonce: 44 })
  const error = await transfer.catch((thrown: BaseError) => thrown)
  assert.ok(error instanceof BaseError && error.walk((cause) => (cause as Error).name === 'NonceTooHighError'))
})

type Authorization = { to: Hex; value: bigint; nonce: Hex; now?: number }
type Signed = readonly [Hex, Hex, bigint, bigint, bigint, Hex, Hex]

/** Signs like a wallet, valid from ten minutes ago and for eight days, as the service's authorizations are. */
async function authorize(
  name: string,
  version: string,
  verifyingContract: Hex,
  { to, value, nonce, now = Date.now() / 1000 }: Authorization,
  primaryType = 'TransferWithAuthorization',
): Promise<Signed> {
  const [validAfter, validBefore] = [BigInt(Math.floor(now)) - 600n, BigInt(Math.floor(now)) + 691_200n]
  const message = { from: alice.address, to, value, validAfter, validBefore, nonce }
  const signature = await alice.signTypedData({
    domain: { name, version, chainId, verifyingContract },
    primaryType,
    types: {
      [primaryType]: [
        { type: 'address', name: 'from' },
        { type: 'address', name: 'to' },
        { type: 'uint256', name: 'value' },
        { type: 'uint256', name: 'validAfter' },
        { type: 'uint256', name: 'validBefore' },
        { type: 'bytes32', name: 'nonce' },
      ],
    },
    message,
  })
  return [alice.address, to, value, validAfter, validBefore, nonce, signature]
}

function dropPayee([from, , ...rest]: Signed) {
  return [from, ...rest] as const
}
