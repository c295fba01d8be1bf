import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { type Config, isMasterKeyInline, refuseEmbeddedInProduction, removeSecrets } from '../config/config.ts'
import { prepareDataDir } from '../db/data-dir.ts'
import { removeDatabaseFile, writeDatabaseFile } from '../db/database-file.ts'
import { loginLink } from '../identity/login-links.ts'
import type { Usdc } from '../money/usdc.ts'
import { type Service, startService } from '../run/service.ts'
import { announce } from './announce.ts'
import { type Command, CommandError, type Output } from './command.ts'
import { createProgress, type Progress } from './progress.ts'
import { openSandboxAccount } from './sandbox-account.ts'
import { type SandboxFile, writeSandboxFile } from './sandbox-file.ts'
import { aborted, type StopSignals, watchStopSignals } from './stop-signal.ts'

const execute = promisify(execFile)
const notifyMsMax = 5_000
const masterKeyIgnored =
  'MASTER_KEY is ignored: this machine does not sign, because ROLES has no jobs. Remove the key from it.'
const masterKeyInline =
  'MASTER_KEY is set in the environment. Use MASTER_KEY_FILE, so that only the signer process has the key.'

export const startCommand: Command = {
  usage: [
    ['penny start', 'Runs until Ctrl-C or SIGTERM, then finishes the running requests'],
    ['--hide-secrets', 'Print neither the sandbox’s API key nor its sign-in link: for journals and container logs'],
    ['--allow-embedded', 'Allow the embedded database, chain and model with NODE_ENV=production'],
  ],
  options: { 'allow-embedded': { type: 'boolean' }, 'hide-secrets': { type: 'boolean' } },
  async run({ options, config, output }) {
    removeSecrets()
    refuseEmbeddedInProduction(config, options['allow-embedded'] === true)
    await prepareDataDir(config.dataDir)

    if (config.isMasterKeyIgnored) process.stderr.write(`  ${masterKeyIgnored}\n`)
    if (config.production && config.publicUrl?.startsWith('http://'))
      process.stderr.write(
        '  PUBLIC_URL is http: keys and sessions travel unencrypted. Put TLS in front, and set https.\n',
      )
    if (isMasterKeyInline(config)) process.stderr.write(`  ${masterKeyInline}\n`)
    const signals = watchStopSignals()
    const progress = createProgress()
    const service = await startUnlessStopped(config, progress, signals.stop)
    if (service === undefined) return 0
    try {
      if (config.databaseUrl === undefined) removeDatabaseFile(config.dataDir)
      else writeDatabaseFile(config.dataDir, config.databaseUrl)
      const announced = openDemo(service, config, progress).then((demo) => {
        const hidesSecrets = options['hide-secrets'] === true
        output.write(announcementOf(service, demo, hidesSecrets, output))
      })
      await Promise.race([announced, aborted(signals.stop)])
      // If a signal interrupted the announcement, it fails once the database has stopped.
      announced.catch(() => {})
      await notifySystemd(config, '--ready')
    } catch (error) {
      // Stop the service: it would keep a failed command alive.
      await service.stop()
      throw error
    } finally {
      progress.end()
    }
    const failure = await Promise.race([aborted(signals.stop), service.failed])
    await notifySystemd(config, 'STOPPING=1')
    await stopService(service, config, signals, failure)
    if (failure !== undefined) throw new CommandError(failure.message)
    return 0
  },
}

/**
 * Notifies systemd that the service is ready or stopping, if systemd asked for it (`Type=notify`). Its socket takes datagrams,
 * which Node cannot send to a unix socket; `systemd-notify` is part of every systemd. A failure must not stop a running service.
 */
async function notifySystemd({ notifySocket }: Config, state: '--ready' | 'STOPPING=1'): Promise<void> {
  if (notifySocket === undefined) return
  const env = { NOTIFY_SOCKET: notifySocket, PATH: '/usr/bin:/bin' }
  await execute('systemd-notify', [state], { env, timeout: notifyMsMax }).catch((error: Error) =>
    say(`systemd was not notified: ${error.message}`),
  )
}

/** Undefined when a signal came first; then everything that was started is stopped again. */
async function startUnlessStopped(config: Config, progress: Progress, stop: AbortSignal): Promise<Service | undefined> {
  let isStarting = true
  const onStop = () => {
    progress.end()
    say('Start interrupted. Stopping.')
  }
  stop.addEventListener('abort', onStop, { once: true })
  try {
    const onProgress = (line: string) => (isStarting && !stop.aborted ? progress.step(line) : say(line))
    return await startService(config, onProgress, { signal: stop })
  } catch (error) {
    progress.end()
    if (!stop.aborted) throw error
    return undefined
  } finally {
    isStarting = false
    stop.removeEventListener('abort', onStop)
  }
}

async function stopService(
  service: Service,
  config: Config,
  { hurry }: StopSignals,
  failure: Error | undefined,
): Promise<void> {
  say(failure === undefined ? describeStop(await service.countRequests(), config) : `Stopping: ${failure.message}`)
  const onHurry = async () => {
    const counting = service.countRequests()
    service.hurry()
    const requests = await counting
    if (requests > 0) say(`Stopping now: ending ${countOf(requests)}.`)
  }
  if (hurry.aborted) void onHurry()
  else hurry.addEventListener('abort', () => void onHurry())
  await service.stop()
}

function describeStop(requests: number, { drainMs, shutdownDelayMs }: Config): string {
  if (shutdownDelayMs > 0)
    return `Stopping in ${shutdownDelayMs / 1000} s: /readyz answers 503, so that load balancers send requests elsewhere. Then running requests have ${drainMs / 1000} s. A second signal stops now.`
  if (requests === 0) return 'Stopping.'
  const ending = requests === 1 ? 'it ends' : 'they end'
  return `${countOf(requests)} running; stopping when ${ending}, at most ${drainMs / 1000} s. Press Ctrl-C again to stop now.`
}

function countOf(requests: number): string {
  return `${requests} request${requests === 1 ? '' : 's'}`
}

function say(line: string): void {
  process.stderr.write(`  ${line}\n`)
}

type Demo = { readonly file: SandboxFile; readonly spendable: Usdc }

/** Opens the sandbox's demo account. Undefined in production. */
async function openDemo(service: Service, config: Config, progress: Progress): Promise<Demo | undefined> {
  if (config.chain !== undefined) {
    progress.end()
    return undefined
  }
  progress.step('Opening the demo account.')
  const { apiKey, loginToken, spendable } = await openSandboxAccount(service, config)
  progress.end()
  const file = {
    base_url: `${service.publicUrl}/v1`,
    api_key: apiKey,
    dashboard_url: loginLink(service.publicUrl, loginToken),
    pid: process.pid,
  }
  writeSandboxFile(config.dataDir, file)
  return { file, spendable }
}

function announcementOf(service: Service, demo: Demo | undefined, hidesSecrets: boolean, output: Output): string {
  if (demo === undefined) return `Penny Router is ready at ${service.publicUrl}/v1\n`
  if (output.json) return `${JSON.stringify(demo.file)}\n`
  return announce(demo.file, { spendable: demo.spendable, model: service.defaultModel, hidesSecrets }, output)
}
