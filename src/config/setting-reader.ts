import { accessSync, constants, readFileSync, statSync } from 'node:fs'
import { OperatorError } from '../errors.ts'
import { InvalidAmountError, parse, type Usdc } from '../money/usdc.ts'
import type { SecretName, SettingName } from './settings.ts'

export type Environment = Readonly<Record<string, string | undefined>>

/** One variable and its origin. The value of a secret is hidden. */
export type ConfigEntry = {
  readonly name: SettingName
  /** Undefined when it is unset and has no default, or an embedded one. */
  readonly value: string | undefined
  readonly origin: 'environment' | 'file' | 'default'
  /** What is accepted, of a number or an amount: "10 to 60000". */
  readonly range?: string
}

const addressPattern = /^0x[0-9a-fA-F]{40}$/

/** Reads and checks one value at a time. An empty value counts as unset, as in most shells and compose files. */
export class SettingReader {
  readonly #environment: Environment
  readonly #entries = new Map<SettingName, ConfigEntry>()
  readonly #ranges = new Map<SettingName, string>()

  constructor(environment: Environment) {
    this.#environment = environment
  }

  get entries(): readonly ConfigEntry[] {
    return [...this.#entries.values()].map((entry) => {
      const range = this.#ranges.get(entry.name)
      return range === undefined ? entry : { ...entry, range }
    })
  }

  text(name: SettingName): string | undefined
  text(name: SettingName, fallback: string): string
  text(name: SettingName, fallback?: string): string | undefined {
    const value = this.#raw(name)
    this.#note(
      name,
      value === undefined ? fallback : withoutKeys(value),
      value === undefined ? 'default' : 'environment',
    )
    return value ?? fallback
  }

  #raw(name: string): string | undefined {
    const value = this.#environment[name]?.trim()
    return value === '' ? undefined : value
  }

  // Keeps the first reading, which knows the default: rules about other variables may read the same name again.
  #note(name: SettingName, value: string | undefined, origin: ConfigEntry['origin']): void {
    if (!this.#entries.has(name) || origin === 'file') this.#entries.set(name, { name, value, origin })
  }

  /** Reads a secret from its variable, or from the file that its `_FILE` variable names. */
  secret(name: SecretName): string | undefined {
    const file = this.#raw(`${name}_FILE`)
    const value = this.#raw(name)
    this.#note(name, value === undefined ? undefined : hidden(value), value === undefined ? 'default' : 'environment')
    if (file === undefined) return value
    if (value !== undefined) throw new InvalidConfigError(`${name} and ${name}_FILE are both set: keep one.`)
    try {
      const content = readFileSync(file, 'utf8').trim()
      this.#note(name, hidden(content), 'file')
      if (content !== '') return content
    } catch (error) {
      throw new InvalidConfigError(`${name}_FILE cannot be read: ${(error as Error).message}.`)
    }
    throw new InvalidConfigError(`${name}_FILE names an empty file.`)
  }

  /** The path of a secret that another process reads. Checks that the file is readable and not empty. Undefined when it is not set. */
  secretFile(name: SecretName): string | undefined {
    const file = this.#raw(`${name}_FILE`)
    if (file === undefined) return undefined
    if (this.#raw(name) !== undefined) throw new InvalidConfigError(`${name} and ${name}_FILE are both set: keep one.`)
    this.#note(name, '(hidden)', 'file')
    let size: number
    try {
      accessSync(file, constants.R_OK)
      size = statSync(file).size
    } catch (error) {
      throw new InvalidConfigError(`${name}_FILE cannot be read: ${(error as Error).message}.`)
    }
    if (size === 0) throw new InvalidConfigError(`${name}_FILE names an empty file.`)
    return file
  }

  /** Whether the secret is set. Does not read it. */
  isGiven(name: SecretName): boolean {
    return this.#raw(name) !== undefined || this.#raw(`${name}_FILE`) !== undefined
  }

  integer(name: SettingName, fallback: number, min: number, max: number): number {
    this.#noteDefault(name, String(fallback))
    return this.optionalInteger(name, min, max) ?? fallback
  }

  optionalInteger(name: SettingName, min: number, max: number): number | undefined {
    this.#ranges.set(name, max === Number.MAX_SAFE_INTEGER ? `${min} or more` : `${min} to ${max}`)
    const value = this.text(name)
    if (value === undefined) return undefined
    const number = Number(value)
    if (/^\d+$/.test(value) && number >= min && number <= max) return number
    throw new InvalidConfigError(`${name} must be a whole number from ${min} to ${max}, got "${value}".`)
  }

  amount(name: SettingName, fallback: string): Usdc {
    this.#ranges.set(name, 'above 0')
    const value = this.text(name, fallback)
    const amount = amountOf(value)
    if (amount !== undefined && amount > 0n) return amount
    throw new InvalidConfigError(`${name} must be an amount of USDC above 0, such as 1.00, got "${value}".`)
  }

  /** Accepts 0. */
  optionalAmount(name: SettingName): Usdc | undefined {
    this.#ranges.set(name, '0 or more')
    const value = this.text(name)
    if (value === undefined) return undefined
    const amount = amountOf(value)
    if (amount !== undefined) return amount
    throw new InvalidConfigError(`${name} must be an amount of USDC, such as 0.05, got "${value}".`)
  }

  #noteDefault(name: SettingName, fallback: string): void {
    if (this.#raw(name) === undefined) this.#note(name, fallback, 'default')
  }

  flag(name: SettingName): boolean {
    this.#noteDefault(name, '0')
    const value = this.text(name)
    if (value === undefined || value === '0' || value === 'false') return false
    if (value === '1' || value === 'true') return true
    throw new InvalidConfigError(`${name} must be 1 or 0, got "${value}".`)
  }

  oneOf<Choice extends string>(name: SettingName, choices: readonly Choice[], fallback: Choice): Choice {
    const value = this.text(name, fallback)
    if (choices.includes(value as Choice)) return value as Choice
    throw new InvalidConfigError(`${name} must be one of ${choices.join(', ')}, got "${value}".`)
  }

  /** A subset of `choices`, separated by commas. Unset means all of them. */
  list<Choice extends string>(name: SettingName, choices: readonly Choice[]): readonly Choice[] {
    this.#noteDefault(name, choices.join(','))
    const value = this.text(name)
    if (value === undefined) return choices
    const asked = value.split(',').map((item) => item.trim())
    const known = choices.filter((choice) => asked.includes(choice))
    if (known.length === asked.length) return known
    throw new InvalidConfigError(`${name} must be some of ${choices.join(', ')}, separated by commas, got "${value}".`)
  }

  /** One or more of `choices`, separated by commas, in order of preference; or `none`. */
  listOf<Choice extends string>(name: SettingName, choices: readonly Choice[]): readonly Choice[] | undefined {
    const value = this.text(name)
    if (value === undefined) return undefined
    if (value === 'none') return []
    const items = value.split(',').map((item) => item.trim() as Choice)
    if (items.every((item, index) => choices.includes(item) && items.indexOf(item) === index)) return items
    throw new InvalidConfigError(
      `${name} must be one or several of ${choices.join(', ')}, each once, or none, got "${value}".`,
    )
  }

  /** An http(s) address, without the trailing slash. */
  url(name: SettingName): string | undefined {
    const value = this.text(name)
    if (value === undefined) return undefined
    const url = URL.parse(value)
    if (url === null || (url.protocol !== 'http:' && url.protocol !== 'https:'))
      throw new InvalidConfigError(`${name} must be an http or https address, got "${value}".`)
    // Not printed: it may be a key.
    if (url.search !== '' || url.hash !== '')
      throw new InvalidConfigError(`${name} must be an address without a query: remove everything from "?" or "#" on.`)
    return value.replace(/\/+$/, '')
  }

  /** An http(s) address of scheme, host and port only. */
  origin(name: SettingName): string | undefined {
    const value = this.url(name)
    const { pathname, username, password } = new URL(value ?? 'http://localhost')
    if (pathname === '/' && `${username}${password}` === '') return value
    throw new InvalidConfigError(
      `${name} must be only scheme and host, such as https://router.example.com: without a path, name or password.`,
    )
  }

  /** One or more addresses, separated by commas. */
  addresses(name: SettingName): readonly string[] | undefined {
    const items = this.text(name)
      ?.split(',')
      .map((item) => item.trim())
    if (items === undefined || items.every((item) => addressPattern.test(item))) return items
    throw new InvalidConfigError(`${name} must be addresses, 0x and 40 hex digits each, separated by commas.`)
  }

  address(name: SettingName): string | undefined {
    const value = this.text(name)
    if (value === undefined || addressPattern.test(value)) return value
    throw new InvalidConfigError(`${name} must be an address, 0x and 40 hex digits, got "${value}".`)
  }
}

/** Shows only that a secret is set; of a URL with a password, everything else. */
function hidden(secret: string): string {
  const url = URL.parse(secret)
  if (url === null || url.host === '') return '(hidden)'
  return `${url.protocol}//${url.username === '' ? '' : `${url.username}:(hidden)@`}${url.host}${url.pathname}`
}

/** Node providers and collectors put keys into URLs. */
function withoutKeys(value: string): string {
  return value
    .replace(/(?<=\/)[A-Za-z0-9_-]{20,}(?=\/|\?|$)/g, '(hidden)')
    .replace(/(?<=[?&][^=&]*=)[^&]+/g, '(hidden)')
    .replace(/\/\/[^/@]+@/, '//(hidden)@')
}

/** The environment is invalid: the service does not start, and prints this one line. */
export class InvalidConfigError extends OperatorError {}

function amountOf(value: string): Usdc | undefined {
  try {
    return parse(value)
  } catch (error) {
    if (error instanceof InvalidAmountError) return undefined
    throw error
  }
}
