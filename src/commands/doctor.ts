import type { Config } from '../config/config.ts'
import { migrationsFolder } from '../db/migrate.ts'
import { type Finding, failed, ok, skipped, warning } from '../doctor/finding.ts'
import { checkDatabase } from '../doctor/ledger.ts'
import { answersAsPenny, checkDataFolder, checkDisk, checkPort, checkRuntime } from '../doctor/machine.ts'
import { checkChain, checkMasterKey, checkProviders, checkSearch, checkSettings } from '../doctor/outside.ts'
import { reasonOf } from '../errors.ts'
import { loadCatalog } from '../run/catalog.ts'
import type { Command, Output } from './command.ts'
import { readSandboxFile } from './sandbox-file.ts'

export const doctorCommand: Command = {
  usage: [
    ['penny doctor', 'Changes nothing. Sends one query to a configured search provider. Exit code 1 if a check fails'],
  ],
  options: {},
  async run({ config, output }) {
    return report(await examine(config), output)
  },
  async withoutConfig(error, output) {
    return report(
      [failed('configuration', error.message, 'Correct the variable; penny config shows all of them.')],
      output,
    )
  },
}

/** Concurrently: checks that wait for a network must not delay the others. */
async function examine(config: Config): Promise<readonly Finding[]> {
  const found = await Promise.all([
    checkService(config),
    checkRuntime(config),
    checkDataFolder(config),
    checkDisk(config),
    checkPort(config),
    checkSettings(config),
    checkModels(config),
    checkMasterKey(config),
    checkDatabase(config, migrationsFolder),
    checkProviders(config),
    checkSearch(config),
    checkChain(config),
  ])
  return found.flat()
}

/** Uses the address that the sandbox's service stored, whatever PORT is set for this command. */
async function checkService({ dataDir, port }: Config): Promise<readonly Finding[]> {
  const sandbox = readSandboxFile(dataDir)
  // A truncated file has no address.
  const origin = URL.parse(sandbox?.base_url ?? '')?.origin
  if (sandbox === undefined || origin === undefined) return []
  if (await answersAsPenny(origin)) {
    const running = ok('service', `Penny runs at ${origin} (process ${sandbox.pid}).`)
    if (port === 0 || URL.parse(origin)?.port === String(port)) return [running]
    const detail =
      'The service that runs has other settings than this shell. The checks below are about those of this shell.'
    return [running, warning('settings', detail, 'Run penny doctor with the environment of the service.')]
  }
  return [skipped('service', `The last service, at ${origin}, does not respond.`)]
}

function checkModels(config: Config): readonly Finding[] {
  const file = config.providersFile === undefined ? 'MODELS_FILE' : 'PROVIDERS_FILE'
  try {
    const { prices, warnings } = loadCatalog(config)
    return [
      ok('models', `${prices.models.size} with prices.`),
      ...warnings.map((line) => warning('prices', line, `Raise the price in ${file}, or use a cheaper upstream.`)),
    ]
  } catch (error) {
    const remedy = file === 'MODELS_FILE' ? 'Correct MODELS_FILE, or unset it for the five models.' : `Correct ${file}.`
    return [failed('models', reasonOf(error), remedy)]
  }
}

const marks = { ok: '✓', warning: '!', failed: '✗', skipped: '–' } as const
const colors = { ok: '32', warning: '33', failed: '31', skipped: '2' } as const

function report(findings: readonly Finding[], output: Output): number {
  const broken = findings.filter(({ state }) => state === 'failed').length
  if (output.json) output.write(`${JSON.stringify({ ok: broken === 0, findings }, null, 2)}\n`)
  else {
    for (const { check, state, detail, remedy } of findings) {
      const mark = output.color ? `\x1b[${colors[state]}m${marks[state]}\x1b[0m` : marks[state]
      output.write(`${mark} ${check.padEnd(16)} ${detail}\n`)
      if (remedy !== undefined) output.write(`${' '.repeat(19)}→ ${remedy}\n`)
    }
    output.write(
      broken === 0 ? '\nNo problems found.\n' : `\n${broken} ${broken === 1 ? 'problem' : 'problems'} found.\n`,
    )
  }
  return broken === 0 ? 0 : 1
}
