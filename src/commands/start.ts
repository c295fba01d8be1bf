import { type Config, refuseEmbeddedInProduction } from '../config.ts'
import { prepareDataDir } from '../db/data-dir.ts'
import { removeDatabaseFile, writeDatabaseFile } from '../db/database-file.ts'
import { loginLink } from '../identity/login-links.ts'
import { type Service, startService } from '../service.ts'
import { announce } from './announce.ts'
import { type Command, CommandError, type Output } from './command.ts'
import { openSandboxAccount } from './sandbox-account.ts'
import { writeSandboxFile } from './sandbox-file.ts'
import { aborted, type StopSignals, watchStopSignals } from './stop-signal.ts'

const masterKeyIgnored =
  'MASTER_KEY is ignored: ROLES has no jobs, and only such a machine signs. Take it away from this one.'

export const startCommand: Command = {
  summary: 'start the service and everything it needs',
  usage: `penny start                       runs until Ctrl-C or SIGTERM, then finishes what is under way
      --allow-embedded                NODE_ENV=production with embedded stand-ins, knowingly`,
  options: { 'allow-embedded': { type: 'boolean' } },
  async run({ options, config, output }) {
    refuseEmbeddedInProduction(config, options['allow-embedded'] === true)
    await prepareDataDir(config.dataDir)

    if (config.isMasterKeyIgnored) process.stderr.write(`  ${masterKeyIgnored}\n`)
    const signals = watchStopSignals()
    const service = await startUnlessStopped(config, signals.stop)
    if (service === undefined) return 0
    try {
      if (config.databaseUrl === undefined) removeDatabaseFile(config.dataDir)
      else writeDatabaseFile(config.dataDir, config.databaseUrl)
      await announceService(service, config, output)
    } catch (error) {
      // Left running, a service that nobody was told of would keep a command alive that has failed.
      await service.stop()
      throw error
    }
    const failure = await Promise.race([aborted(signals.stop), service.failed])
    await stopService(service, config, signals, failure)
    if (failure !== undefined) throw new CommandError(failure.message)
    return 0
  },
}

/** Undefined when a signal came first; then everything that was started is stopped again. */
async function startUnlessStopped(config: Config, stop: AbortSignal): Promise<Service | undefined> {
  const tell = () => say('Stopping: the start is interrupted.')
  stop.addEventListener('abort', tell, { once: true })
  try {
    return await startService(config, say, { signal: stop })
  } catch (error) {
    if (!stop.aborted) throw error
    return undefined
  } finally {
    stop.removeEventListener('abort', tell)
  }
}

async function stopService(
  service: Service,
  { drainMs }: Config,
  { hurry }: StopSignals,
  failure: Error | undefined,
): Promise<void> {
  say(failure === undefined ? describeStop(service.requestsUnderWay, drainMs) : `Stopping: ${failure.message}`)
  hurry.addEventListener('abort', () => {
    if (service.requestsUnderWay > 0) say(`Stopping now: ending ${countOf(service.requestsUnderWay)}.`)
    service.hurry()
  })
  await service.stop()
}

function describeStop(requests: number, drainMs: number): string {
  if (requests === 0) return 'Stopping.'
  const ending = requests === 1 ? 'it ends' : 'they end'
  return `${countOf(requests)} under way; stopping when ${ending}, at most ${drainMs / 1000} s. Press Ctrl-C again to stop now.`
}

function countOf(requests: number): string {
  return `${requests} request${requests === 1 ? '' : 's'}`
}

function say(line: string): void {
  process.stderr.write(`  ${line}\n`)
}

async function announceService(service: Service, config: Config, output: Output): Promise<void> {
  if (config.chain !== undefined) {
    output.write(`Penny Router is ready at ${service.publicUrl}/v1\n`)
    return
  }
  const demo = await openSandboxAccount(service, config)
  const file = {
    base_url: `${service.publicUrl}/v1`,
    api_key: demo.apiKey,
    dashboard_url: loginLink(service.publicUrl, demo.loginToken),
    pid: process.pid,
  }
  writeSandboxFile(config.dataDir, file)
  output.write(output.json ? `${JSON.stringify(file)}\n` : announce(file, demo.spendable, service.defaultModel, output))
}
