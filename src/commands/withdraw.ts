import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { reportSecurityChange } from '../alerts/security.ts'
import { type AccountEvent, operatorActor, writeAccountLog } from '../db/account-log.ts'
import type { Connection, Database } from '../db/database.ts'
import { findAccount } from '../ledger/accounts.ts'
import { accountNamed } from '../ledger/named-account.ts'
import { type WithdrawalState, withdrawalStateOf } from '../ledger/states.ts'
import type { Transfer } from '../ledger/transfers.ts'
import { findWithdrawal, readWithdrawalFeeMax, WithdrawalBelowFeeError } from '../ledger/withdrawals.ts'
import { format, type Usdc } from '../money/usdc.ts'
import { Funds, NoOwnerAddressError } from '../settlement/funds.ts'
import { openSigner } from '../signer/signer.ts'
import { SignerUnavailableError } from '../signer/signer-line.ts'
import { type Command, CommandError, type Output } from './command.ts'
import { confirm, confirmOptions, confirmUsage } from './confirm.ts'
import { readAmountOrAll, readUuid } from './read-options.ts'
import { withRetryId } from './retry-id.ts'
import { withDatabase } from './with-database.ts'

const withdrawMsMax = 120_000
const pollMs = 100

export const withdrawCommand: Command = {
  usage: [
    [
      'penny withdraw --amount USDC|all',
      'Withdraw to the registered owner address. The minimum is 0.10 USDC, or all, and more than the gateway’s fee',
    ],
    [
      '--to 0x…',
      'Register this owner address first. A changed address, and the first address of an account with money, takes effect after OWNER_COOLDOWN',
    ],
    ['--account ID|NAME', 'Its account (default: the only account, or the demo account of the sandbox)'],
    ['--id UUID', 'Retry a withdrawal with the id it printed; it is made only once'],
    ...confirmUsage,
  ],
  options: {
    amount: { type: 'string' },
    to: { type: 'string' },
    account: { type: 'string' },
    id: { type: 'string' },
    ...confirmOptions,
  },
  async run({ options, config, output }) {
    if (typeof options.amount !== 'string') throw new CommandError('How much? Add --amount USDC, or --amount all.', 2)
    const asked = readAmountOrAll('amount', options.amount)
    using signer = openSigner({ dataDir: config.dataDir, waitMsMax: 5_000 })
    return await withDatabase(config, async (database) => {
      const account = await accountNamed(database, typeof options.account === 'string' ? options.account : undefined)
      const funds = new Funds({ database, signer, withdrawalMin: config.withdrawalMin })
      const id = typeof options.id === 'string' ? readUuid('id', options.id) : randomUUID()
      const { spendable } = (await findAccount(database, account.partition, account.id))!
      // On a retry "all" was taken out of the balance before.
      const stored = await findWithdrawal(database, account.partition, account.id, id)
      const amount: Usdc = asked === 'all' ? (stored?.amount ?? spendable) : asked
      if (amount <= 0n) throw new CommandError('There is nothing to withdraw.')
      const feeMax = stored?.feeMax ?? (await readWithdrawalFeeMax(database))
      if (amount <= feeMax) throw new WithdrawalBelowFeeError(amount, feeMax)
      const fee =
        feeMax === 0n
          ? ''
          : ` ${format(amount - feeMax)} USDC arrives: the gateway's fee is at most ${format(feeMax)} USDC.`
      const place =
        options.to === undefined
          ? 'to its registered address'
          : `to ${options.to}, and register that address as the account's owner`
      await confirm({ options }, `Withdraw ${format(amount)} USDC of ${account.name} (${account.id}) ${place}?${fee}`)
      const logged =
        (event: AccountEvent, facts: Readonly<Record<string, string>>) => async (connection: Connection) => {
          const ref = { partition: account.partition, accountId: account.id }
          await writeAccountLog(connection, ref, { event, actor: operatorActor, facts })
          await reportSecurityChange(connection, [ref], event, facts)
        }
      if (typeof options.to === 'string') {
        const log = logged('owner_changed', { address: options.to.toLowerCase() })
        await funds.registerOwner(account, options.to, false, log).catch((error: unknown) => {
          if (!(error instanceof SignerUnavailableError)) throw error
          throw new CommandError(`Nothing was withdrawn: ${error.message}. Start the service, then try again.`)
        })
      }
      const log = logged('withdrawal_requested', { withdrawal_id: id, amount: amount.toString() })
      const end = await withRetryId('withdrawal', id, output, async () => {
        const requested = await funds.withdraw(account, id, amount, log).catch((error: unknown) => {
          throw error instanceof NoOwnerAddressError ? new CommandError(`${error.message} Use --to 0x….`) : error
        })
        return follow(database, requested, output)
      })
      if (output.json) output.write(`${JSON.stringify(render(end))}\n`)
      return end.state === 'confirmed' ? 0 : 1
    })
  },
}

/** Prints the request with the id to retry with, always: a fast service may be past that step. Then each step that it sees, once. */
async function follow(database: Database, requested: Transfer, output: Output): Promise<Transfer> {
  const deadline = performance.now() + withdrawMsMax
  if (!output.json) output.write(`${requestedWords(requested)}\n`)
  let printed: Step | undefined
  for (;;) {
    const now = (await findWithdrawal(database, requested.partition, requested.accountId, requested.id))!
    // `settled`: earlier charges are paid, and the withdrawal can be submitted.
    const state = withdrawalStateOf(now.state)
    const step = state === 'requested' && now.readyAt !== undefined ? 'settled' : state
    if (step !== printed && !output.json) output.write(`${words[step](now)}\n`)
    printed = step
    if (now.state === 'confirmed' || now.state === 'failed') return now
    if (performance.now() > deadline)
      throw new CommandError(
        `Still in progress: the running service carries it out. Run the command again with --id ${requested.id} to follow it.`,
      )
    await sleep(pollMs)
  }
}

type Step = WithdrawalState | 'settled'

const words: Readonly<Record<Step, (withdrawal: Transfer) => string>> = {
  requested: () => 'Settling earlier charges.',
  settled: () => 'Earlier charges are settled on chain.',
  sent: () => 'Signed and sent to the gateway.',
  confirmed: ({ transactionHash, feeMax, fee = feeMax }) =>
    feeMax === 0n
      ? `Paid in transaction ${transactionHash}.`
      : `Paid in transaction ${transactionHash}. The fee was ${format(fee)} USDC; ${format(feeMax - fee)} USDC was returned.`,
  failed: ({ reason }) => `Failed: ${reason}. The money was returned.`,
}

function requestedWords({ id, amount, feeMax, counterparty: recipient }: Transfer): string {
  if (feeMax === 0n) return `Requested: ${format(amount)} USDC to ${recipient} (${id}).`
  return `Requested: ${format(amount)} USDC, of which ${format(amount - feeMax)} go to ${recipient} and up to ${format(feeMax)} are the gateway's fee (${id}).`
}

function render({
  id,
  amount,
  feeMax,
  fee,
  counterparty: recipient,
  state,
  transactionHash,
  reason,
}: Transfer): object {
  return {
    id,
    amount_atomic: amount.toString(),
    receives_atomic: (amount - feeMax).toString(),
    fee_atomic: (fee ?? feeMax).toString(),
    recipient,
    state,
    tx_hash: transactionHash ?? null,
    reason: reason ?? null,
  }
}
