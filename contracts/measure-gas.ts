/**
 * Measures what each operation costs, as whole transactions on an in-process chain with Arc's rules, and prints the tables of the README.
 * Payments are signed as wallets sign typed data, and every one must settle, or the run fails.
 *
 *   npm run contracts:gas
 */
import { createHardhatRuntimeEnvironment } from 'hardhat/hre'
import {
  createWalletClient,
  custom,
  encodeDeployData,
  encodeEventTopics,
  encodeFunctionData,
  type Hex,
  parseSignature,
  toHex,
} from 'viem'
import { devUsdcAbi, devUsdcBytecode } from './generated/DevUsdc.abi.ts'
import { settlementGatewayAbi, settlementGatewayBytecode } from './generated/SettlementGateway.abi.ts'

type Receipt = { gasUsed: Hex; contractAddress: Hex; logs: { topics: Hex[] }[]; status: Hex }
type Measured = { name: string; gas: bigint; count: number }

const chainId = 5_042_002
const authorizationsMax = 250
const transactionGasMax = 2n ** 24n
const gasPriceGwei = 20n
const requestsPerPayment = [1, 10, 100, 1_000]
const now = 1_800_000_000n
const window = { validAfter: now - 600n, validBefore: now + 691_200n }

const { network } = await createHardhatRuntimeEnvironment({
  networks: {
    measured: {
      type: 'edr-simulated',
      chainId,
      hardfork: 'osaka',
      accounts: { count: 2 + 2 * authorizationsMax },
      initialDate: new Date(Number(now) * 1_000),
    },
  },
})
const { provider } = await network.create('measured')
const wallet = createWalletClient({ transport: custom(provider) })
const [operator, seller, ...depositors] = (await provider.request({ method: 'eth_accounts' })) as [Hex, Hex, ...Hex[]]
const [payers, newcomers] = [depositors.slice(0, authorizationsMax), depositors.slice(authorizationsMax)]
const payer = payers[0]!

const [usdcAbi, gatewayAbi] = [devUsdcAbi, settlementGatewayAbi]
const usdc = await deploy(encodeDeployData({ abi: usdcAbi, bytecode: devUsdcBytecode, args: [operator] }))
const withdrawalDelay = 1n
const gatewayArgs = [usdc, withdrawalDelay, operator, operator, operator] as const
const gateway = await deploy(
  encodeDeployData({ abi: gatewayAbi, bytecode: settlementGatewayBytecode, args: gatewayArgs }),
)
for (const depositor of depositors) {
  await send(
    depositor,
    usdc,
    encodeFunctionData({ abi: usdcAbi, functionName: 'faucet', args: [depositor, 10n ** 12n] }),
  )
  await send(
    depositor,
    usdc,
    encodeFunctionData({ abi: usdcAbi, functionName: 'approve', args: [gateway, 10n ** 12n] }),
  )
  await deposit(depositor, 10n ** 9n)
}
/** The last nonce of each payer, so that none is used twice. */
const sequences = new Map<Hex, bigint>()
let lastBatchId = 0n

console.log('| transaction | gas | gas per authorization | USDC per authorization at 20 gwei |')
console.log('|---|---|---|---|')
for (const { name, gas, count } of [...(await measureBatches()), ...(await measureOthers())]) {
  const each = gas / BigInt(count)
  // Gas is paid in native USDC of 18 decimals, so a gwei is a billionth of a USDC.
  const paid = Number(each * gasPriceGwei) / 1e9
  console.log(`| ${name} | ${gas.toLocaleString('en')} | ${each.toLocaleString('en')} | ${paid.toFixed(6)} |`)
}

// A payment pays for many requests of one account, and an account has one payment on its way at a time: so the payments of a batch have
// different payers, and a request costs the gas of its payment divided by the requests that share the payment.
const titles = requestsPerPayment.map((count) => `per request, ${count.toLocaleString('en')} in a payment`)
console.log(`\n| payments in the batch | gas per payment | ${titles.join(' | ')} |`)
console.log(`|---|---|${titles.map(() => '---|').join('')}`)
for (const count of [1, 10, 100, authorizationsMax]) {
  const gas = (await settle(payers.slice(0, count), seller, count)) / BigInt(count)
  const each = requestsPerPayment.map((requests) => {
    const ofRequest = Number(gas) / requests
    const paid = ((ofRequest * Number(gasPriceGwei)) / 1e9).toFixed(8)
    return `${Math.ceil(ofRequest).toLocaleString('en')} (${paid} USDC)`
  })
  console.log(`| ${count} | ${gas.toLocaleString('en')} | ${each.join(' | ')} |`)
}

async function measureBatches(): Promise<Measured[]> {
  const first = await settle([payer], seller, 1)
  const measured: Measured[] = [{ name: 'settleBatch, 1, the first ever of payer and seller', gas: first, count: 1 }]
  // From here on every payer has paid before: its word of nonces and the seller's balance are in storage already.
  await settle(payers, seller, authorizationsMax)
  const cases: [count: number, payers: number][] = [
    [1, 1],
    [10, 1],
    [10, 10],
    [100, 1],
    [100, 10],
    [100, 100],
  ]
  for (const [count, payerShare] of cases) {
    const gas = await settle(payers.slice(0, payerShare), seller, count)
    measured.push({ name: `settleBatch, ${count} of ${payerShare} payer${payerShare > 1 ? 's' : ''}`, gas, count })
  }
  const worst = await settle(newcomers, 'strangers', authorizationsMax)
  if (worst > transactionGasMax) throw new Error(`The largest batch takes ${worst} gas, above ${transactionGasMax}.`)
  const name = `settleBatch, ${authorizationsMax} of as many new payers to as many new payees (the worst case)`
  return [...measured, { name, gas: worst, count: authorizationsMax }]
}

async function measureOthers(): Promise<Measured[]> {
  const deposited = await deposit(payer, 1_000n)
  const payment = await signedPayment('ReceiveWithAuthorization', [payer, gateway, 1_000n])
  const { from, value, validAfter, validBefore, nonce, r, s, v } = payment
  const args = [usdc, from, value, validAfter, validBefore, nonce, v, r, s] as const
  const sweep = encodeFunctionData({ abi: gatewayAbi, functionName: 'depositWithAuthorization', args })
  const swept = await send(operator, gateway, sweep)
  const initiate = encodeFunctionData({ abi: gatewayAbi, functionName: 'initiateWithdrawal', args: [usdc, 1_000n] })
  const initiated = await send(payer, gateway, initiate)
  const withdraw = encodeFunctionData({ abi: gatewayAbi, functionName: 'withdraw', args: [usdc] })
  return [
    { name: 'deposit, not the first', gas: deposited, count: 1 },
    { name: 'depositWithAuthorization, not the first', gas: swept, count: 1 },
    { name: 'initiateWithdrawal', gas: initiated, count: 1 },
    { name: 'withdraw', gas: await send(payer, gateway, withdraw), count: 1 },
  ]
}

/** Settles `count` payments, those of one payer next to each other, to one payee or each to a stranger. */
async function settle(from: Hex[], payee: Hex | 'strangers', count: number): Promise<bigint> {
  const rows = []
  for (let index = 0; index < count; index++) {
    const one = from[Math.floor((index * from.length) / count)]!
    const to: Hex = payee === 'strangers' ? `0x${[...one.slice(2)].reverse().join('')}` : payee
    rows.push(await signedPayment('TransferWithAuthorization', [one, to, 2_400n]))
  }
  lastBatchId += 1n
  const args = [lastBatchId, `0x${'a5'.repeat(32)}`, rows] as const
  return send(operator, gateway, encodeFunctionData({ abi: gatewayAbi, functionName: 'settleBatch', args }))
}

/** Nonces as the service makes them: a key of 192 bits, here made of the address, and a sequence of 64. */
async function signedPayment(primaryType: string, [from, to, value]: readonly [Hex, Hex, bigint]) {
  const sequence = (sequences.get(from) ?? 0n) + 1n
  sequences.set(from, sequence)
  const nonce: Hex = `0x${from.slice(2)}${from.slice(2, 10)}${sequence.toString(16).padStart(16, '0')}`
  const message = { from, to, value, ...window, nonce }
  const names = [
    'address from',
    'address to',
    'uint256 value',
    'uint256 validAfter',
    'uint256 validBefore',
    'bytes32 nonce',
  ]
  const fields = names.map((text) => ({ type: text.split(' ')[0]!, name: text.split(' ')[1]! }))
  const domain =
    to === gateway
      ? { name: 'USDC', version: '2', chainId, verifyingContract: usdc }
      : { name: 'GatewayWalletBatched', version: '1', chainId, verifyingContract: gateway }
  const signature = await wallet.signTypedData({
    account: from,
    domain,
    types: { [primaryType]: fields },
    primaryType,
    message,
  })
  const { r, s, v } = parseSignature(signature)
  return { ...message, v: Number(v), r, s }
}

function deposit(from: Hex, amount: bigint): Promise<bigint> {
  return send(from, gateway, encodeFunctionData({ abi: gatewayAbi, functionName: 'deposit', args: [usdc, amount] }))
}

async function deploy(data: Hex): Promise<Hex> {
  return (await transact({ from: operator, data })).contractAddress
}

/** Returns the gas that the call took. */
async function send(from: Hex, to: Hex, data: Hex): Promise<bigint> {
  const { gasUsed, logs } = await transact({ from, to, data })
  const [skipped] = encodeEventTopics({ abi: gatewayAbi, eventName: 'AuthorizationSkipped' })
  if (logs.some(({ topics }) => topics[0] === skipped)) throw new Error('A good payment was skipped.')
  return BigInt(gasUsed)
}

async function transact(call: object): Promise<Receipt> {
  const params = [{ gas: toHex(transactionGasMax), ...call }]
  const hash = await provider.request({ method: 'eth_sendTransaction', params })
  return (await provider.request({ method: 'eth_getTransactionReceipt', params: [hash] })) as Receipt
}
