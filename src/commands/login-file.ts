import { accessSync, constants, existsSync, mkdirSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import type { Config } from '../config/config.ts'
import { reasonOf } from '../errors.ts'
import { writePrivateFile } from '../process/private-file.ts'
import { CommandError } from './command.ts'

/** The service that this user is logged in to, and the keys. */
export type Login = {
  /** Scheme, host and port, without a path. */
  readonly origin: string
  readonly api_key?: string | undefined
  /** Manages the account; cannot pay for requests. */
  readonly management_key?: string | undefined
}

const fileOf = ({ userConfigDir }: Config) => join(userConfigDir, 'login.json')

/** Throws when a login could not be stored. Call it before a key is created for it. */
export function checkLoginFolder({ userConfigDir }: Config): void {
  try {
    mkdirSync(userConfigDir, { recursive: true, mode: 0o700 })
    accessSync(userConfigDir, constants.W_OK)
  } catch (error) {
    throw new CommandError(`The login cannot be saved in ${userConfigDir}: ${reasonOf(error)}. Set XDG_CONFIG_HOME.`)
  }
}

export function writeLogin(config: Config, login: Login): string {
  mkdirSync(config.userConfigDir, { recursive: true, mode: 0o700 })
  writePrivateFile(fileOf(config), `${JSON.stringify(login, null, 2)}\n`)
  return fileOf(config)
}

/** False when there was no login. */
export function removeLogin(config: Config): boolean {
  const exists = existsSync(fileOf(config))
  rmSync(fileOf(config), { force: true })
  return exists
}

export function readLogin(config: Config): Login | undefined {
  try {
    return JSON.parse(readFileSync(fileOf(config), 'utf8')) as Login
  } catch {
    return undefined
  }
}
