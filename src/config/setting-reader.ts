import { accessSync, constants, readFileSync, statSync } from 'node:fs'
import { InvalidConfigError, type Setting, type ValueOf } from './setting.ts'
import { type SecretName, type SettingName, type Settings, settings } from './settings.ts'

export type Environment = Readonly<Record<string, string | undefined>>

/** One variable and its origin. The value of a secret is hidden. */
export type ConfigEntry = {
  readonly name: SettingName
  /** Undefined when it is unset and has no default, or one that other settings decide. */
  readonly value: string | undefined
  readonly origin: 'environment' | 'file' | 'default'
}

/** Reads and checks one setting at a time. An empty value counts as unset, as in most shells and compose files. */
export class SettingReader {
  readonly #environment: Environment
  readonly #entries = new Map<SettingName, ConfigEntry>()

  constructor(environment: Environment) {
    this.#environment = environment
  }

  /** What was read. */
  get entries(): readonly ConfigEntry[] {
    return [...this.#entries.values()]
  }

  read<Name extends SettingName>(name: Name): ValueOf<Settings[Name]> {
    const { fallback, parse, isSecret }: Setting = settings[name]
    const file = isSecret ? this.#readFile(name as SecretName) : undefined
    const given = file ?? this.#raw(name)
    const unset = typeof fallback === 'object' ? undefined : String(fallback)
    const shown = isSecret ? hidden : withoutKeys
    const origin = file !== undefined ? 'file' : given !== undefined ? 'environment' : 'default'
    this.#entries.set(name, { name, value: given === undefined ? unset : shown(given), origin })
    const value = given ?? unset
    if (value === undefined) return undefined as ValueOf<Settings[Name]>
    return parse(value, (what, hide) => {
      throw new InvalidConfigError(`${name} ${what}${isSecret || hide ? '' : `, got "${value}"`}.`)
    }) as ValueOf<Settings[Name]>
  }

  #raw(name: string): string | undefined {
    const value = this.#environment[name]?.trim()
    return value === '' ? undefined : value
  }

  #readFile(name: SecretName): string | undefined {
    const file = this.secretFile(name)
    if (file === undefined) return undefined
    const content = readFileSync(file, 'utf8').trim()
    if (content === '') throw new InvalidConfigError(`${name}_FILE names an empty file.`)
    return content
  }

  /** The path of a secret. Checks that the file is readable and not empty. Undefined when the secret is not in a file. */
  secretFile(name: SecretName): string | undefined {
    const file = this.#raw(`${name}_FILE`)
    if (file === undefined) return undefined
    if (this.#raw(name) !== undefined) throw new InvalidConfigError(`${name} and ${name}_FILE are both set: keep one.`)
    this.#entries.set(name, { name, value: '(hidden)', origin: 'file' })
    let size: number
    try {
      accessSync(file, constants.R_OK)
      size = statSync(file).size
    } catch (error) {
      throw new InvalidConfigError(
        `${name}_FILE cannot be read: ${(error as Error).message}. Create the file, or unset ${name}_FILE.`,
      )
    }
    if (size === 0) throw new InvalidConfigError(`${name}_FILE names an empty file.`)
    return file
  }

  /** Whether the secret is set. Does not read it. */
  isGiven(name: SecretName): boolean {
    return this.#raw(name) !== undefined || this.#raw(`${name}_FILE`) !== undefined
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
    .replace(/(?<=\/)[A-Za-z0-9_-]{20,}(?=[/?, ]|$)/g, '(hidden)')
    .replace(/(?<=[?&][^=&]*=)[^&]+/g, '(hidden)')
    .replace(/\/\/[^/@]+@/, '//(hidden)@')
}
