import { existsSync, mkdirSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import type { Config } from '../config.ts'
import { findOutsideDatabase } from '../db/database-file.ts'
import { writePrivateFile } from '../private-file.ts'

/** A service that this user is a customer of, and the key to it. */
export type Login = {
  /** Without a path. */
  readonly origin: string
  readonly api_key: string
}

const fileOf = ({ userConfigDir }: Config) => join(userConfigDir, 'login.json')

export function writeLogin(config: Config, login: Login): string {
  mkdirSync(config.userConfigDir, { recursive: true, mode: 0o700 })
  writePrivateFile(fileOf(config), `${JSON.stringify(login, null, 2)}\n`)
  return fileOf(config)
}

/** False when there was none. */
export function removeLogin(config: Config): boolean {
  const exists = existsSync(fileOf(config))
  rmSync(fileOf(config), { force: true })
  return exists
}

/** Undefined where nobody is logged in, and on a machine that has a service of its own: there the command is its operator's. */
export function findLogin(config: Config): Login | undefined {
  const hasService = findOutsideDatabase(config) !== undefined || existsSync(join(config.dataDir, 'postgres'))
  return hasService ? undefined : readLogin(config)
}

export function readLogin(config: Config): Login | undefined {
  try {
    return JSON.parse(readFileSync(fileOf(config), 'utf8')) as Login
  } catch {
    return undefined
  }
}
