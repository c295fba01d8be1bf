import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { test } from 'node:test'
import { findViolations } from '../../src/ledger/audit.ts'
import { findWithdrawal } from '../../src/ledger/withdrawals.ts'
import { fromAtomic } from '../../src/money/usdc.ts'
import { Funds } from '../../src/settlement/funds.ts'
import { openSigner } from '../../src/signer/signer.ts'
import {
  accountNow,
  ask,
  gatewayOf,
  type MoneyAccount,
  type MoneyService,
  openWallet,
  startMoneyService,
  sums,
  usdcOf,
} from '../support/money-service.ts'
import { until } from '../support/until.ts'

test('from a wallet to the gateway, through two hundred requests to the chain, and back to the owner, to the atomic unit', async (t) => {
  const money = await startMoneyService(t, { environment: { WITHDRAWAL_MIN_USDC: '0.000001' } })
  const account = await money.openAccount()
  const wallet = await openWallet(money, '5')

  await wallet.send(account.address, 3_000_000n)
  await until(async () => (await accountNow(money, account)).spendable === 3_000_000n)
  assert.equal(await gatewayOf(money, account.address), 3_000_000n)

  for (let round = 0; round < 20; round += 1) {
    const answers = await Promise.all(Array.from({ length: 10 }, () => ask(money, account)))
    assert.deepEqual([...new Set(answers.map(({ status }) => status))], [200])
  }
  await until(async () => isPaid(await sums(money, account)))
  const settled = await sums(money, account)
  const { terms } = money.money
  assert.equal(await gatewayOf(money, terms.seller), settled.charged, 'on chain as in the ledger')
  assert.equal(await gatewayOf(money, account.address), 3_000_000n - settled.charged)

  const owner = await openWallet(money, '0')
  const charged = await withdrawAllUnderLoad(money, account, owner.address)
  const after = await accountNow(money, account)
  assert.deepEqual([after.gateway + after.credit, after.held], [0n, 0n])
  assert.equal(await usdcOf(money, owner.address), 3_000_000n - charged, 'deposits less charges')
  assert.equal(await gatewayOf(money, account.address), 0n, 'nothing is stranded')
  assert.equal(await gatewayOf(money, terms.seller), charged)
  assert.deepEqual(await findViolations(money.service.database), [])
})

/** Requests go on while everything is withdrawn; what they give back as credit is withdrawn after them. */
async function withdrawAllUnderLoad(money: MoneyService, account: MoneyAccount, owner: `0x${string}`): Promise<bigint> {
  using signer = openSigner({ dataDir: money.dataDir, onFault: assert.ifError })
  const funds = new Funds({ database: money.service.database, signer, withdrawalMin: fromAtomic(1n) })
  await funds.registerOwner(account, owner, true)
  const load = Array.from({ length: 4 }, async () => {
    for (let sent = 0; sent < 10; sent += 1) assert.ok([200, 402].includes((await ask(money, account)).status))
  })
  const withdrawAll = async () => {
    const { spendable } = await accountNow(money, account)
    if (spendable <= 0n) return
    const id = randomUUID()
    // Another request may have been quicker: then there is less, and it is asked again.
    await funds.withdraw(account, id, fromAtomic(spendable)).catch(() => undefined)
    await until(async () => {
      const withdrawal = await findWithdrawal(money.service.database, account.partition, account.id, id)
      return withdrawal === undefined || withdrawal.state === 'confirmed'
    })
  }
  await withdrawAll()
  await Promise.all(load)
  await until(async () => {
    await withdrawAll()
    return (await accountNow(money, account)).spendable === 0n
  })
  await until(async () => isPaid(await sums(money, account)))
  return (await sums(money, account)).charged
}

function isPaid({ charged, paid, open }: { charged: bigint; paid: bigint; open: bigint }): boolean {
  return open === 0n && charged === paid
}
