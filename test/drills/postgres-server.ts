import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chownSync, mkdtempSync, openSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Database, openDatabase } from '../../src/db/database.ts'
import { until } from '../support/until.ts'

// PostgreSQL as Debian packages it.

export const postgresEngine = {
  name: 'PostgreSQL',
  program: 'initdb',
  folders: [18, 17, 16, 15].map((version) => `/usr/lib/postgresql/${version}/bin`),
  package: 'postgresql-15',
  version: '--version',
}

/** `database` is the one named penny. */
export type Server = {
  readonly port: number
  readonly folder: string
  readonly process: ChildProcess
  database: Database
}

/** A folder for servers, which is removed at the end. */
export function makeServerFolder(stack: AsyncDisposableStack): string {
  const folder = mkdtempSync(join(tmpdir(), 'penny-server-drill-'))
  stack.defer(() => rmSync(folder, { recursive: true, force: true, maxRetries: 10 }))
  if (asOther !== undefined) chownSync(folder, asOther.uid, asOther.gid)
  return folder
}

/** A new server with an empty database named penny. */
export async function createServer(
  programs: string,
  folder: string,
  port: number,
  stack: AsyncDisposableStack,
): Promise<Server> {
  runAsOther(join(programs, 'initdb'), ['-D', folder, '-U', 'penny', '--auth=trust', '--encoding=UTF8', '--no-sync'])
  const server = await startServer(programs, folder, port, stack)
  const administration = openDatabase({ url: urlOf(port, 'postgres'), poolMax: 1, applicationName: 'drill' })
  await administration.execute('create database penny')
  await administration.close()
  return server
}

/** PostgreSQL refuses to run as root. */
const asOther = process.getuid?.() === 0 ? { uid: idOfNobody('-u'), gid: idOfNobody('-g') } : undefined

function idOfNobody(flag: '-u' | '-g'): number {
  return Number(execFileSync('id', [flag, 'nobody'], { encoding: 'utf8' }))
}

export function runAsOther(program: string, args: readonly string[]): void {
  execFileSync(program, args, { ...asOther, cwd: '/', stdio: 'pipe', timeout: 120_000 })
}

export async function startServer(
  programs: string,
  folder: string,
  port: number,
  stack: AsyncDisposableStack,
): Promise<Server> {
  const settings = { listen_addresses: '127.0.0.1', port, unix_socket_directories: '', shared_buffers: '64MB' }
  const flags = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])
  const log = openSync(`${folder}.log`, 'a')
  const child = spawn(join(programs, 'postgres'), ['-D', folder, ...flags], {
    ...asOther,
    cwd: '/',
    stdio: ['ignore', log, log],
  })
  const exited = once(child, 'exit')
  const database = openDatabase({ url: urlOf(port, 'penny'), poolMax: 2, applicationName: 'drill' })
  const server: Server = { port, folder, process: child, database }
  stack.defer(async () => {
    await database.close()
    if (child.exitCode === null && child.signalCode === null && child.kill('SIGQUIT')) await exited
  })
  const probe = openDatabase({ url: urlOf(port, 'postgres'), poolMax: 1, applicationName: 'drill' })
  await until(() =>
    probe.query('select').then(
      () => true,
      () => false,
    ),
  )
  await probe.close()
  return server
}

export function urlOf(port: number, name: string): string {
  return `postgresql://penny@127.0.0.1:${port}/${name}`
}
