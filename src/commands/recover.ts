import { setTimeout as sleep } from 'node:timers/promises'
import type { Config } from '../config.ts'
import type { Database } from '../db/database.ts'
import { findFreeze, findViolations, freezeLedger, unfreezeLedger } from '../ledger/audit.ts'
import { readCursor } from '../ledger/chain-cursors.ts'
import { summarizeSettlements } from '../ledger/settlements.ts'
import { format, fromAtomic } from '../money/usdc.ts'
import { paymentTerms } from '../settlement/authorization.ts'
import { openChain } from '../settlement/chain.ts'
import { type MoneyLine, readMoneyLine } from '../settlement/money-line.ts'
import { createRail } from '../settlement/rail.ts'
import { type Recovery, recoverPayments } from '../settlement/recover.ts'
import { type Command, CommandError, type Output } from './command.ts'
import { withDatabase } from './with-database.ts'

const replayMsMax = 10 * 60_000
const pollMs = 200
const reason = 'restored from a copy: penny recover brings it up to the chain'

export const recoverCommand: Command = {
  summary: 'after restoring a copy of the database: bring the books up to the chain',
  usage: `penny recover --freeze            on the copy, before the service is started: no request is taken
  penny recover                     beside the running service: books payments that the copy has forgotten, then takes requests again`,
  options: { freeze: { type: 'boolean' } },
  async run({ options, config, output }) {
    return withDatabase(config, async (database) => {
      if (options.freeze === true) {
        await freezeLedger(database, reason)
        output.write(output.json ? '{"frozen":true}\n' : 'Frozen. Start the service, then run penny recover.\n')
        return 0
      }
      if ((await findFreeze(database)) === undefined)
        throw new CommandError(
          'The ledger is not frozen: requests may have used nonces that are taken. Run penny recover --freeze before the start.',
        )
      return recover(database, config, output)
    })
  },
}

async function recover(database: Database, config: Config, output: Output): Promise<number> {
  const line = readMoneyLine(config.dataDir)
  await replayed(database, line)
  await using rail = createRail({ url: line.gatewayUrl, domain: line.terms.gatewayDomain })
  const onProgress = (done: number, all: number) => {
    if (!output.json && process.stderr.isTTY) process.stderr.write(`\r  ${done} of ${all} accounts`)
  }
  const terms = paymentTerms(line.terms, config.settlementEpoch)
  const recovery = await recoverPayments({ database, rail, terms, onProgress })
  const violations = await findViolations(database)
  const isWhole = recovery.unexplained.length === 0 && violations.length === 0
  if (isWhole) await unfreezeLedger(database)
  output.write(output.json ? toJson(recovery, violations, isWhole) : toText(recovery, isWhole))
  return isWhole ? 0 : 1
}

function toJson({ payments, value, unexplained }: Recovery, violations: readonly object[], isWhole: boolean): string {
  const missing = unexplained.map((row) => ({ ...row, missing: row.missing.toString() }))
  const result = { payments, value_atomic: value.toString(), unexplained: missing, violations, frozen: !isWhole }
  return `${JSON.stringify(result, null, 2)}\n`
}

function toText({ payments, value, unexplained }: Recovery, isWhole: boolean): string {
  const lines = [
    `${payments} forgotten payments booked as credit: ${format(fromAtomic(value))} USDC.`,
    ...unexplained.map(
      ({ account, missing }) => `${account}: ${format(fromAtomic(missing))} USDC more have left than payments explain.`,
    ),
    isWhole ? 'The books are right; requests are taken again.' : 'The ledger stays frozen.',
  ]
  return `${lines.join('\n')}\n`
}

/** Until the running service has read the chain to its end, and knows of every payment of the copy how it stands. */
async function replayed(database: Database, { rpcUrl, terms }: MoneyLine): Promise<void> {
  const chain = await openChain({ rpcUrl, usdc: terms.usdc.address, gatewayWallet: terms.gatewayWallet })
  const head = await chain.finalBlock()
  const deadline = performance.now() + replayMsMax
  for (;;) {
    const isRead = ((await readCursor(database, 'deposits')) ?? -1n) >= head
    const isKnown = (await summarizeSettlements(database)).every(({ state }) => !open.has(state))
    if (isRead && isKnown) return
    if (performance.now() > deadline)
      throw new CommandError(
        'The service has not caught up with the chain yet: is it running? See penny settle status.',
      )
    await sleep(pollMs)
  }
}

const open = new Set(['allocated', 'signed', 'submitted', 'unknown'])
