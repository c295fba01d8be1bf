import { isUuid } from '../db/uuid.ts'
import { parseRequestId } from '../ledger/request-id.ts'
import { InvalidAmountError, parse, type Usdc } from '../money/usdc.ts'
import { CommandError } from './command.ts'

/** Parses the amount of USDC of an option. */
export function readAmount(option: string, text: string): Usdc {
  try {
    const amount = parse(text)
    if (amount >= 0n) return amount
  } catch (error) {
    if (!(error instanceof InvalidAmountError)) throw error
  }
  throw new CommandError(
    `--${option} must be an amount of USDC such as 2.50: not negative, with at most six decimals. Got "${text}".`,
    2,
  )
}

export function readAmountOrAll(option: string, text: string): Usdc | 'all' {
  return text === 'all' ? 'all' : readAmount(option, text)
}

/** Parses the id of a withdrawal, payout or adjustment that is retried. */
export function readUuid(option: string, text: string): string {
  if (isUuid(text.toLowerCase())) return text
  throw new CommandError(`--${option} must be the UUID that the first attempt printed. Got "${text}".`, 2)
}

/** For verbs without further words: `penny keys list acme` must not list the keys of all accounts. */
export function refuseWordAfter(verbs: readonly string[], [verb, unread]: readonly string[]): void {
  if (verb === undefined || unread === undefined || !verbs.includes(verb)) return
  throw new CommandError(`Unexpected argument "${unread}": ${verb} takes only options. See --help.`, 2)
}

/** Checks a request id as the user wrote it. `usage` is the form of the command. */
export function readRequestId(text: string | undefined, usage: string): string {
  if (text !== undefined && parseRequestId(text) !== undefined) return text
  const wrong = text === undefined ? 'Which request?' : `"${text}" is not a request id: req_ and 32 hex digits.`
  throw new CommandError(`${wrong} ${usage}; penny requests list lists the latest ones.`, 2)
}
