import { setTimeout as sleep } from 'node:timers/promises'
import type { Config } from '../config/config.ts'
import type { Database } from '../db/database.ts'
import { reasonOf } from '../errors.ts'
import { findViolations, type Violation } from '../ledger/audit.ts'
import { beginCursors, copiedAtCursor, deleteCursor, readCursor } from '../ledger/chain-cursors.ts'
import { requestAllDepositAddresses } from '../ledger/deposit-addresses.ts'
import { readEpoch } from '../ledger/epoch.ts'
import { findFreeze, freezeLedger, restoredReason, unfreezeLedger } from '../ledger/freeze.ts'
import { summarizePayments } from '../ledger/payments.ts'
import { isPaymentOpen } from '../ledger/states.ts'
import { format, fromAtomic } from '../money/usdc.ts'
import { paymentTerms } from '../settlement/authorization.ts'
import { type Chain, chainOptions, openChain, refuseUnusableNode } from '../settlement/chain.ts'
import { createGatewayClient } from '../settlement/gateway-client.ts'
import { type Recovery, recoverPayments } from '../settlement/recover.ts'
import { readSettlementEndpoints } from '../settlement/settlement-endpoints.ts'
import { type Command, CommandError, type Output } from './command.ts'
import { withDatabase } from './with-database.ts'

const replayMsMax = 10 * 60_000
const pollMs = 200
/** Each number takes two calls to the gateway: some minutes for an account whose missing payments are never found. */
const gapMax = 65_536

export const recoverCommand: Command = {
  usage: [
    ['penny recover --freeze', 'Before the service starts on a restored copy: refuse new requests'],
    [
      'penny recover',
      'While the service runs: record the payments and withdrawals that are missing from the copy, then accept requests again',
    ],
  ],
  options: { freeze: { type: 'boolean' } },
  async run({ options, config, output }) {
    return withDatabase(config, async (database) => {
      if (options.freeze === true) {
        // Read before the service continues: the ledger may not know what left the gateway after this block.
        await beginCursors(database, [copiedAtCursor], (await readCursor(database, 'deposits')) ?? -1n)
        await requestAllDepositAddresses(database)
        await freezeLedger(database, `${restoredReason}: penny recover updates it from the chain`)
        output.write(output.json ? '{"frozen":true}\n' : 'Frozen. Start the service, then run penny recover.\n')
        return 0
      }
      if ((await findFreeze(database)) === undefined)
        throw new CommandError(
          'The ledger is not frozen, so requests may have reused nonces. Run penny recover --freeze before the service starts.',
        )
      return recover(database, config, output)
    })
  },
}

async function recover(database: Database, config: Config, output: Output): Promise<number> {
  const endpoints = readSettlementEndpoints(config.dataDir)
  const { gatewayUrl, gatewayToken, terms } = endpoints
  const openNode = () => openChain(chainOptions(endpoints))
  const chain = await (config.chain === undefined
    ? openNode().catch((error: unknown) => {
        throw new CommandError(
          `The sandbox chain does not respond: ${reasonOf(error)}. Start the service, then try again.`,
        )
      })
    : refuseUnusableNode(endpoints.rpcUrl, openNode))
  await replayed(database, chain)
  await using gatewayClient = createGatewayClient({ url: gatewayUrl, token: gatewayToken, domain: terms.gatewayDomain })
  const recovery = await recoverPayments({
    database,
    chain,
    gatewayClient,
    // The ledger's own: the command may lack the service's SETTLEMENT_EPOCH, and nonces of another epoch name other payments.
    terms: paymentTerms(terms, (await readEpoch(database)) ?? config.settlementEpoch),
    signingTerms: terms,
    partitions: config.ledgerPartitions,
    copiedAt: await readCursor(database, copiedAtCursor),
    gapMax,
    onProgress(done, all, nonces) {
      const next = nonces === 0 ? '' : `, ${nonces} nonces of the next`
      // \x1b[K clears the rest of a longer previous line.
      if (!output.json && process.stderr.isTTY) process.stderr.write(`\r  ${done} of ${all} accounts${next}\x1b[K`)
    },
  })
  const violations = await findViolations(database)
  const isWhole = recovery.unexplained.length === 0 && violations.length === 0
  if (isWhole) {
    await unfreezeLedger(database)
    await deleteCursor(database, copiedAtCursor)
  }
  printRecovery(output, recovery, violations, isWhole)
  return isWhole ? 0 : 1
}

function printRecovery(output: Output, recovery: Recovery, violations: readonly Violation[], isWhole: boolean): void {
  const { payments, value, unexplained, wallets } = recovery
  const withdrawals = recovery.withdrawals.map((row) => ({
    account: row.accountId,
    amount_atomic: `${row.amount}`,
    recipient: row.counterparty,
    tx_hash: row.transactionHash,
  }))
  const lostAccounts = [...wallets.lostAccounts].map(([address, paid]) => ({ address, paid_atomic: `${paid}` }))
  if (output.json) {
    const missing = unexplained.map((row) => ({ ...row, missing: row.missing.toString() }))
    const facts = {
      payments,
      value_atomic: `${value}`,
      wallet_payments: wallets.payments,
      wallet_value_atomic: `${wallets.value}`,
      wallet_refunds: wallets.refunds,
      wallet_refunded_atomic: `${wallets.refunded}`,
      withdrawals,
      lost_accounts: lostAccounts,
      unexplained: missing,
      violations,
      frozen: !isWhole,
    }
    output.write(`${JSON.stringify(facts, null, 2)}\n`)
    return
  }
  const usdc = (atomic: bigint) => `${format(fromAtomic(atomic))} USDC`
  output.write(`${payments} missing payments recorded: ${usdc(value)}.\n`)
  if (wallets.payments > 0)
    output.write(`${wallets.payments} missing payments of wallets credited: ${usdc(wallets.value)}.\n`)
  if (wallets.refunds > 0)
    output.write(`${wallets.refunds} missing refunds to wallets recorded: ${usdc(wallets.refunded)}.\n`)
  for (const { account, amount_atomic, recipient, tx_hash } of withdrawals)
    output.write(`${account}: recorded a withdrawal of ${usdc(BigInt(amount_atomic))} to ${recipient} (${tx_hash}).\n`)
  for (const { address, paid_atomic } of lostAccounts)
    output.write(
      `${address}: an account that was opened after the copy and is lost. It paid ${usdc(BigInt(paid_atomic))}. See docs/runbooks/backup.md.\n`,
    )
  for (const { account, missing } of unexplained)
    output.write(
      missing > 0n
        ? `${account}: ${usdc(missing)} more have left the gateway than payments and withdrawals account for.\n`
        : `${account}: ${usdc(-missing)} more are at the gateway than in the ledger. If it is a gift, run penny audit --unfreeze to continue without it.\n`,
    )
  output.write(isWhole ? 'All invariants hold. The ledger accepts requests again.\n' : 'The ledger stays frozen.\n')
}

/** Waits until the running service has read the whole chain and knows the state of every payment in the copy. */
async function replayed(database: Database, chain: Chain): Promise<void> {
  const head = await chain.finalBlock()
  const deadline = performance.now() + replayMsMax
  for (;;) {
    const isRead = ((await readCursor(database, 'deposits')) ?? -1n) >= head
    const isKnown = (await summarizePayments(database)).every(
      ({ state }) => state === 'unpaid' || !isPaymentOpen(state),
    )
    if (isRead && isKnown) return
    if (performance.now() > deadline)
      throw new CommandError(
        'The service has not caught up with the chain yet. Check that it is running, and see penny settle status.',
      )
    await sleep(pollMs)
  }
}
