/**
 * Measures what each operation costs, as whole transactions on an in-process chain with Arc's rules, and prints the
 * table of the README. The signatures are made by a wallet's own typed-data signing, so a run also proves that the
 * contract takes what wallets sign: every payment must settle, or the run fails.
 *
 *   node contracts/measure-gas.ts
 */
import { createHardhatRuntimeEnvironment } from 'hardhat/hre'
import { devUsdcBytecode } from './generated/DevUsdc.abi.ts'
import { settlementGatewayBytecode } from './generated/SettlementGateway.abi.ts'

type Hex = `0x${string}`
type Word = bigint | Hex
type Receipt = { gasUsed: Hex; contractAddress: Hex | null; logs: { topics: Hex[] }[] }
type Chain = { request(method: string, ...params: unknown[]): Promise<unknown> }
type Domain = { name: string; version: string; verifyingContract: Hex }
type Payment = { from: Hex; to: Hex; value: bigint; nonce: Hex }
type Setup = { chain: Chain; usdc: Hex; gateway: Hex; operator: Hex; seller: Hex; payers: Hex[]; newcomers: Hex[] }
type Measured = { name: string; gas: bigint; count: number }

const chainId = 5_042_002
const authorizationsMax = 250
const payerCount = authorizationsMax
const transactionGasMax = 2n ** 24n
const gasPriceGwei = 20n
const requestsPerPayment = [1, 10, 100, 1_000]
const now = 1_800_000_000n
const window = [now - 600n, now + 691_200n] as const

/** The last nonce of each payer, so that none is used twice. */
const sequences = new Map<Hex, bigint>()

await main()

async function main(): Promise<void> {
  const setup = await setUp()
  const measured = [
    ...(await measureBatches(setup)),
    ...(await measureDeposits(setup)),
    ...(await measureWithdrawals(setup)),
  ]
  console.log('| transaction | gas | gas per authorization | USDC per authorization at 20 gwei |')
  console.log('|---|---|---|---|')
  for (const row of measured) console.log(describe(row))
  await printRequests(setup)
}

/**
 * A payment pays for many requests of one account, and an account has one payment on its way at a time: so the payments of a
 * batch have different payers, and a request costs the gas of its payment divided by the requests that share the payment.
 */
async function printRequests(setup: Setup): Promise<void> {
  const titles = requestsPerPayment.map((count) => `per request, ${count.toLocaleString('en')} in a payment`)
  console.log(`\n| payments in the batch | gas per payment | ${titles.join(' | ')} |`)
  console.log(`|---|---|${titles.map(() => '---|').join('')}`)
  for (const count of [1, 10, 100, authorizationsMax]) {
    const gas = (await settle(setup, setup.payers.slice(0, count), setup.seller, count)) / BigInt(count)
    const each = requestsPerPayment.map((requests) => describeRequest(Number(gas) / requests))
    console.log(`| ${count} | ${gas.toLocaleString('en')} | ${each.join(' | ')} |`)
  }
}

function describeRequest(gas: number): string {
  const usdc = (gas * Number(gasPriceGwei)) / 1e9
  return `${Math.ceil(gas).toLocaleString('en')} (${usdc.toFixed(8)} USDC)`
}

function describe({ name, gas, count }: Measured): string {
  const each = gas / BigInt(count)
  // Gas is paid in native USDC of 18 decimals, so a gwei is a billionth of a USDC.
  const usdc = Number(each * gasPriceGwei) / 1e9
  return `| ${name} | ${gas.toLocaleString('en')} | ${each.toLocaleString('en')} | ${usdc.toFixed(6)} |`
}

async function setUp(): Promise<Setup> {
  const accounts = { count: 2 + payerCount + authorizationsMax }
  const { network } = await createHardhatRuntimeEnvironment({
    networks: {
      measured: {
        type: 'edr-simulated',
        chainId,
        hardfork: 'osaka',
        accounts,
        initialDate: new Date(Number(now) * 1_000),
      },
    },
  })
  const { provider } = await network.create('measured')
  const chain: Chain = { request: (method, ...params) => provider.request({ method, params }) }
  const [operator, seller, ...depositors] = (await chain.request('eth_accounts')) as [Hex, Hex, ...Hex[]]

  const usdc = await deploy(chain, operator, devUsdcBytecode, [operator])
  const withdrawalDelay = 1n
  const roles = [operator, operator, operator]
  const gateway = await deploy(chain, operator, settlementGatewayBytecode, [usdc, withdrawalDelay, ...roles])
  for (const depositor of depositors) {
    await send(chain, { from: depositor, to: usdc }, 'faucet(address,uint256)', [depositor, 10n ** 12n])
    await send(chain, { from: depositor, to: usdc }, 'approve(address,uint256)', [gateway, 10n ** 12n])
    await send(chain, { from: depositor, to: gateway }, 'deposit(address,uint256)', [usdc, 10n ** 9n])
  }
  const payers = depositors.slice(0, payerCount)
  const newcomers = depositors.slice(payerCount)
  return { chain, usdc, gateway, operator, seller, payers, newcomers }
}

async function measureBatches(setup: Setup): Promise<Measured[]> {
  const { payers, newcomers, seller } = setup
  const measured: Measured[] = []
  const first = await settle(setup, payers.slice(0, 1), seller, 1)
  measured.push({ name: 'settleBatch, 1, the first ever of payer and seller', gas: first, count: 1 })

  // From here on every payer has paid before: its word of nonces and the seller's balance are in storage already.
  await settle(setup, payers, seller, payerCount)
  const cases = [
    [1, 1],
    [10, 1],
    [10, 10],
    [100, 1],
    [100, 10],
    [100, 100],
  ] as const
  for (const [count, payerShare] of cases) {
    const gas = await settle(setup, payers.slice(0, payerShare), seller, count)
    measured.push({ name: `settleBatch, ${count} of ${payerShare} payer${payerShare > 1 ? 's' : ''}`, gas, count })
  }

  const worst = await settle(setup, newcomers, 'strangers', authorizationsMax)
  if (worst > transactionGasMax) throw new Error(`The largest batch takes ${worst} gas, above ${transactionGasMax}.`)
  const name = `settleBatch, ${authorizationsMax} of as many new payers to as many new payees (the worst case)`
  return [...measured, { name, gas: worst, count: authorizationsMax }]
}

async function measureDeposits({ chain, usdc, gateway, operator, payers }: Setup): Promise<Measured[]> {
  const [payer] = payers as [Hex, ...Hex[]]
  const deposited = await send(chain, { from: payer, to: gateway }, 'deposit(address,uint256)', [usdc, 1_000n])

  const payment = nextPayment(payer, gateway, 1_000n)
  const domain = { name: 'USDC', version: '2', verifyingContract: usdc }
  const signature = await sign(chain, 'ReceiveWithAuthorization', payment, domain)
  const types = 'address,address,uint256,uint256,uint256,bytes32,uint8,bytes32,bytes32'
  const words = [usdc, payer, payment.value, ...window, payment.nonce, ...signature]
  const swept = await send(chain, { from: operator, to: gateway }, `depositWithAuthorization(${types})`, words)
  return [
    { name: 'deposit, not the first', gas: deposited, count: 1 },
    { name: 'depositWithAuthorization, not the first', gas: swept, count: 1 },
  ]
}

async function measureWithdrawals({ chain, usdc, gateway, payers }: Setup): Promise<Measured[]> {
  const [payer] = payers as [Hex, ...Hex[]]
  const initiated = await send(chain, { from: payer, to: gateway }, 'initiateWithdrawal(address,uint256)', [
    usdc,
    1_000n,
  ])
  const paid = await send(chain, { from: payer, to: gateway }, 'withdraw(address)', [usdc])
  return [
    { name: 'initiateWithdrawal', gas: initiated, count: 1 },
    { name: 'withdraw', gas: paid, count: 1 },
  ]
}

/** Settles `count` payments, those of one payer next to each other, to one payee or each to a stranger. */
async function settle(setup: Setup, payers: Hex[], payee: Hex | 'strangers', count: number): Promise<bigint> {
  const { chain, gateway, operator } = setup
  const domain = { name: 'GatewayWalletBatched', version: '1', verifyingContract: gateway }
  const rows: Word[] = []
  for (let index = 0; index < count; index++) {
    const payer = payers[Math.floor((index * payers.length) / count)]!
    const payment = nextPayment(payer, payee === 'strangers' ? reversed(payer) : payee, 2_400n)
    const signature = await sign(chain, 'TransferWithAuthorization', payment, domain)
    rows.push(payment.from, payment.to, payment.value, ...window, payment.nonce, ...signature)
  }
  const lastBatchId = await chain.request('eth_call', { to: gateway, data: await selector(chain, 'lastBatchId()') })
  const receiptRoot: Hex = `0x${'a5'.repeat(32)}`
  const offset = 96n
  const words = [BigInt(lastBatchId as Hex) + 1n, receiptRoot, offset, BigInt(count), ...rows]
  const row = '(address,address,uint256,uint256,uint256,bytes32,uint8,bytes32,bytes32)'
  return send(chain, { from: operator, to: gateway }, `settleBatch(uint64,bytes32,${row}[])`, words)
}

/** Nonces as the service makes them: a key of 192 bits, here made of the address, and a sequence of 64. */
function nextPayment(from: Hex, to: Hex, value: bigint): Payment {
  const sequence = (sequences.get(from) ?? 0n) + 1n
  sequences.set(from, sequence)
  const key = `${from.slice(2)}${from.slice(2, 10)}`
  return { from, to, value, nonce: `0x${key}${sequence.toString(16).padStart(16, '0')}` }
}

/** An address that nobody has met. */
function reversed(address: Hex): Hex {
  return `0x${[...address.slice(2)].reverse().join('')}`
}

async function sign(chain: Chain, primaryType: string, payment: Payment, domain: Domain): Promise<Word[]> {
  const [validAfter, validBefore] = window.map(String)
  const signature = (await chain.request('eth_signTypedData_v4', payment.from, {
    primaryType,
    types: {
      EIP712Domain: fields('string name', 'string version', 'uint256 chainId', 'address verifyingContract'),
      [primaryType]: fields(
        ...['address from', 'address to', 'uint256 value', 'uint256 validAfter', 'uint256 validBefore'],
        'bytes32 nonce',
      ),
    },
    domain: { ...domain, chainId },
    message: { ...payment, value: String(payment.value), validAfter, validBefore },
  })) as Hex
  return [`0x${signature.slice(130)}`, `0x${signature.slice(2, 66)}`, `0x${signature.slice(66, 130)}`]
}

function fields(...declarations: string[]): { type: string; name: string }[] {
  return declarations.map((declaration) => {
    const [type, name] = declaration.split(' ') as [string, string]
    return { type, name }
  })
}

async function deploy(chain: Chain, from: Hex, bytecode: string, words: Word[]): Promise<Hex> {
  const receipt = await transact(chain, { from, data: `${bytecode}${encode(words)}` })
  if (receipt.contractAddress === null) throw new Error('The contract was not deployed.')
  return receipt.contractAddress
}

/** Sends a call whose arguments are plain words, and returns the gas it took. */
async function send(chain: Chain, route: { from: Hex; to: Hex }, signature: string, words: Word[]): Promise<bigint> {
  const receipt = await transact(chain, { ...route, data: `${await selector(chain, signature)}${encode(words)}` })
  const skipped = await hash(chain, 'AuthorizationSkipped(uint64,address,bytes32,uint8,uint256,uint256)')
  if (receipt.logs.some((log) => log.topics[0] === skipped)) throw new Error(`${signature} skipped a good payment.`)
  return BigInt(receipt.gasUsed)
}

async function transact(chain: Chain, transaction: object): Promise<Receipt> {
  const gas = `0x${transactionGasMax.toString(16)}`
  const transactionHash = await chain.request('eth_sendTransaction', { gas, ...transaction })
  return (await chain.request('eth_getTransactionReceipt', transactionHash)) as Receipt
}

function encode(words: Word[]): string {
  return words.map((word) => BigInt(word).toString(16).padStart(64, '0')).join('')
}

async function selector(chain: Chain, signature: string): Promise<string> {
  return (await hash(chain, signature)).slice(0, 10)
}

async function hash(chain: Chain, text: string): Promise<Hex> {
  return (await chain.request('web3_sha3', `0x${Buffer.from(text).toString('hex')}`)) as Hex
}
