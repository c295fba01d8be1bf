import type { ProviderHealth } from '../providers/provider.ts'
import { askControl, ControlRefusal, NoServiceError } from '../run/control.ts'
import { type Command, CommandError } from './command.ts'
import { printRows, type Row } from './table.ts'

export const providersCommand: Command = {
  usage: [
    [
      'penny providers',
      "Circuit breaker, latency and last error of each provider, as this machine's service sees them",
    ],
    [
      'penny providers reload',
      'Read PROVIDERS_FILE again without a restart. Running requests are not affected. An invalid file changes nothing',
    ],
  ],
  options: {},
  wordsMax: 1,
  async run({ words: [verb], config, output }) {
    if (verb !== undefined && verb !== 'reload')
      throw new CommandError('Use penny providers, or penny providers reload.', 2)
    const answer = await (verb === undefined
      ? askControl(config.dataDir, 'GET', '/providers')
      : askControl(config.dataDir, 'POST', '/providers/reload')
    ).catch((error: unknown) => {
      if (error instanceof ControlRefusal) throw new CommandError(`Not reloaded. ${error.message}`)
      throw error instanceof NoServiceError ? new CommandError(error.message) : error
    })
    for (const warning of answer.warnings ?? []) process.stderr.write(`${warning}\n`)
    printRows(output, answer.providers.map(rowOf), { omit: ['in_flight', 'failed', 'succeeded'] })
    return 0
  },
}

function rowOf(health: ProviderHealth): Row {
  const { lastFailure, modelsOut } = health
  return {
    provider: health.provider,
    breaker: health.state,
    models_out: modelsOut.length === 0 ? null : modelsOut.join(', '),
    first_byte_ms: health.firstByteMs ?? null,
    in_flight: health.requestsUnderWay,
    succeeded: health.succeeded,
    failed: health.failed,
    last_error:
      lastFailure === undefined ? null : `${Math.round(lastFailure.agoMs / 1000)} s ago: ${lastFailure.message}`,
  }
}
