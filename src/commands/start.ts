import { type Config, refuseEmbeddedInProduction } from '../config.ts'
import { prepareDataDir } from '../db/data-dir.ts'
import { removeDatabaseFile, writeDatabaseFile } from '../db/database-file.ts'
import { loginLink } from '../identity/login-links.ts'
import { type Service, startService } from '../service.ts'
import { announce } from './announce.ts'
import { type Command, CommandError, type Output } from './command.ts'
import { openSandboxAccount } from './sandbox-account.ts'
import { writeSandboxFile } from './sandbox-file.ts'
import { stopSignal } from './stop-signal.ts'

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
    const stop = stopSignal()
    const service = await startService(config, (line) => process.stderr.write(`  ${line}\n`))
    try {
      if (config.databaseUrl === undefined) removeDatabaseFile(config.dataDir)
      else writeDatabaseFile(config.dataDir, config.databaseUrl)
      await announceService(service, config, output)
    } catch (error) {
      // Left running, a service that nobody was told of would keep a command alive that has failed.
      await service.stop()
      throw error
    }

    const why = await Promise.race([stop, service.failed])
    process.stderr.write(
      why instanceof Error ? `  Stopping: ${why.message}\n` : '  Stopping: finishing what is under way …\n',
    )
    await service.stop()
    if (why instanceof Error) throw new CommandError(why.message)
    return 0
  },
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
