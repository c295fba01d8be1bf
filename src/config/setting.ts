import { OperatorError } from '../errors.ts'
import { InvalidAmountError, parse, type Usdc } from '../money/usdc.ts'

/** An environment variable: what it does, its default, and how its text is read. `Fallback` is `Unset` where reading may give undefined. */
export type Setting<Value = unknown, Fallback = unknown> = {
  /** What it does, in one or two sentences of Markdown. */
  readonly about: string
  readonly fallback: Fallback
  readonly parse: (text: string, refuse: Refuse) => Value
  /** What is accepted, of a number or an amount: "10 to 60000". */
  readonly range?: string | undefined
  /** The secret may be in a file instead, named by the variable with the suffix `_FILE`. Its value is never shown. */
  readonly isSecret?: true
}

export type ValueOf<Of> =
  Of extends Setting<infer Value, infer Fallback> ? (Fallback extends Unset ? Value | undefined : Value) : never

/** No default, or one that other settings decide. */
export type Unset = { readonly unset: string }

/** Ends the start with a line that begins with the variable's name and, unless it is a secret, ends with its value. */
export type Refuse = (what: string, hide?: 'hide') => never

/** The environment is invalid: the service does not start, and prints this one line. */
export class InvalidConfigError extends OperatorError {}

/** What happens while the setting is not set, in Markdown. */
export function unset(text: string): Unset {
  return { unset: text }
}

/** The default as the reference shows it, in Markdown. */
export function describeDefault({ fallback }: Setting): string {
  return typeof fallback === 'object' ? (fallback as Unset).unset : `\`${fallback}\``
}

export function text<Fallback extends string | Unset>(about: string, fallback: Fallback): Setting<string, Fallback> {
  return { about, fallback, parse: (value) => value }
}

/** Text of a form that `what` describes: "must be …". */
export function matching(about: string, fallback: Unset, pattern: RegExp, what: string): Setting<string, Unset> {
  return { about, fallback, parse: (value, refuse) => (pattern.test(value) ? value : refuse(what)) }
}

/** The value never appears in a message. */
export function secret(about: string, fallback: Unset, pattern = /^/, what = ''): Setting<string, Unset> & Secret {
  const check = (value: string, refuse: Refuse) => (pattern.test(value) ? value : refuse(what, 'hide'))
  return { about, fallback, parse: check, isSecret: true }
}

type Secret = { readonly isSecret: true }

export function integer<Fallback extends number | Unset>(
  about: string,
  fallback: Fallback,
  min: number,
  max: number,
): Setting<number, Fallback> {
  return {
    about,
    fallback,
    range: max === Number.MAX_SAFE_INTEGER ? `${min} or more` : `${min} to ${max}`,
    parse(value, refuse) {
      const number = Number(value)
      if (/^\d+$/.test(value) && number >= min && number <= max) return number
      return refuse(`must be a whole number from ${min} to ${max}`)
    },
  }
}

/** An amount of USDC above 0. */
export function amount(about: string, fallback: string): Setting<Usdc, string> {
  const isAccepted = (value: Usdc) => value > 0n
  return { about, fallback, range: 'above 0', parse: amountReader(isAccepted, 'above 0, such as 1.00') }
}

/** An amount of USDC; may be 0. */
export function amountOrZero(about: string, fallback: Unset): Setting<Usdc, Unset> {
  return { about, fallback, range: '0 or more', parse: amountReader(() => true, 'such as 0.05') }
}

function amountReader(isAccepted: (value: Usdc) => boolean, what: string) {
  return (value: string, refuse: Refuse): Usdc => {
    try {
      const amount = parse(value)
      if (isAccepted(amount)) return amount
    } catch (error) {
      if (!(error instanceof InvalidAmountError)) throw error
    }
    return refuse(`must be an amount of USDC${what.startsWith('above') ? ' ' : ', '}${what}`)
  }
}

export function flag(about: string): Setting<boolean, string> {
  return {
    about,
    fallback: '0',
    parse(value, refuse) {
      if (value === '0' || value === 'false') return false
      return value === '1' || value === 'true' || refuse('must be 1 or 0')
    },
  }
}

export function oneOf<Choice extends string>(
  about: string,
  fallback: Choice,
  choices: readonly Choice[],
): Setting<Choice, string> {
  return {
    about,
    fallback,
    parse: (value, refuse) =>
      choices.find((choice) => choice === value) ?? refuse(`must be one of ${choices.join(', ')}`),
  }
}

/** A subset of `choices`, separated by commas; all of them by default. */
export function someOf<Choice extends string>(
  about: string,
  choices: readonly Choice[],
): Setting<readonly Choice[], string> {
  return {
    about,
    fallback: choices.join(','),
    parse(value, refuse) {
      const asked = itemsOf(value)
      const known = choices.filter((choice) => asked.includes(choice))
      return known.length === asked.length
        ? known
        : refuse(`must be some of ${choices.join(', ')}, separated by commas`)
    },
  }
}

/** One or more of `choices`, separated by commas, in order of preference; or `none`. */
export function inOrder<Choice extends string>(
  about: string,
  fallback: Unset,
  choices: readonly Choice[],
): Setting<readonly Choice[], Unset> {
  return {
    about,
    fallback,
    parse(value, refuse) {
      if (value === 'none') return []
      const items = itemsOf(value) as Choice[]
      if (items.every((item, index) => choices.includes(item) && items.indexOf(item) === index)) return items
      return refuse(`must be one or several of ${choices.join(', ')}, each once, or none`)
    },
  }
}

/** Items of the form `pattern`, separated by commas. */
export function listOf(
  about: string,
  fallback: Unset,
  pattern: RegExp,
  what: string,
): Setting<readonly string[], Unset> {
  return {
    about,
    fallback,
    parse(value, refuse) {
      const items = itemsOf(value)
      return items.every((item) => pattern.test(item)) ? items : refuse(what)
    },
  }
}

/** An http(s) address, without the trailing slash. */
export function url(about: string, fallback: Unset): Setting<string, Unset> {
  return { about, fallback, parse: readUrl }
}

/** One or several of them, separated by commas, in order of preference; joined again. */
/** http(s) addresses, and beside them WebSocket addresses of the same form. */
export function urls(about: string, fallback: Unset): Setting<string, Unset> {
  const read = (item: string, refuse: Refuse) =>
    /^wss?:/.test(item) ? readUrl(item.replace(/^ws/, 'http'), refuse).replace(/^http/, 'ws') : readUrl(item, refuse)
  return {
    about,
    fallback,
    parse(value, refuse) {
      const items = itemsOf(value).map((item) => read(item, refuse))
      return items.some((item) => item.startsWith('http'))
        ? items.join(',')
        : refuse('must have an http or https address')
    },
  }
}

/** An http(s) address of scheme, host and port only. */
export function origin(about: string, fallback: Unset): Setting<string, Unset> {
  return {
    about,
    fallback,
    parse(value, refuse) {
      const address = readUrl(value, refuse)
      const { pathname, username, password } = new URL(address)
      if (pathname === '/' && `${username}${password}` === '') return address
      return refuse(
        'must be only scheme and host, such as https://router.example.com: without a path, name or password',
        'hide',
      )
    },
  }
}

function readUrl(value: string, refuse: Refuse): string {
  const parsed = URL.parse(value)
  if (parsed === null || (parsed.protocol !== 'http:' && parsed.protocol !== 'https:'))
    return refuse('must be an http or https address')
  // Not printed: it may be a key.
  if (parsed.search !== '' || parsed.hash !== '')
    return refuse('must be an address without a query: remove everything from "?" or "#" on', 'hide')
  return value.replace(/\/+$/, '')
}

const addressPattern = /^0x[0-9a-fA-F]{40}$/

export function address(about: string, fallback: Unset): Setting<string, Unset> {
  return matching(about, fallback, addressPattern, 'must be an address, 0x and 40 hex digits')
}

export function addresses(about: string, fallback: Unset): Setting<readonly string[], Unset> {
  return listOf(about, fallback, addressPattern, 'must be addresses, 0x and 40 hex digits each, separated by commas')
}

function itemsOf(value: string): readonly string[] {
  return value.split(',').map((item) => item.trim())
}
