import type { Config } from '../config/config.ts'
import { isNetwork, type OptionChanges } from '../identity/key-options.ts'
import { zero } from '../money/usdc.ts'
import { loadCatalog } from '../run/catalog.ts'
import { CommandError, type Invocation } from './command.ts'
import { readAmount } from './read-options.ts'

/** Parses `--models`, `--max-cost`, `--web-tools` and `--ips`. A model that the key already has may stay even if it is no longer sold. */
export function readKeyOptions(
  options: Invocation['options'],
  config: Config,
  alreadyAllowed: readonly string[] = [],
): OptionChanges {
  const { models, ips, 'max-cost': cost, 'web-tools': tools } = options
  if (tools !== undefined && tools !== 'on' && tools !== 'off') {
    throw new CommandError(`--web-tools must be on or off. Got "${tools}".`, 2)
  }
  return {
    allowedModels: readModels(models, config, alreadyAllowed),
    maxRequestCost: cost === undefined ? undefined : cost === 'none' ? null : readCost(String(cost)),
    webTools: tools === undefined ? undefined : tools === 'on',
    allowedIps: readNetworks(ips),
  }
}

function readModels(
  text: string | boolean | undefined,
  config: Config,
  alreadyAllowed: readonly string[],
): readonly string[] | undefined {
  const names = readList(text)
  if (names === undefined || names.length === 0) return names
  const known = [...new Set([...loadCatalog(config).prices.models.keys(), ...alreadyAllowed])]
  const unknown = names.find((name) => !known.includes(name))
  if (unknown === undefined) return names
  throw new CommandError(`--models: unknown model "${unknown}". The models are ${known.join(', ')}.`, 2)
}

function readNetworks(text: string | boolean | undefined): readonly string[] | undefined {
  const networks = readList(text)
  const wrong = networks?.find((network) => !isNetwork(network))
  if (wrong === undefined) return networks
  throw new CommandError(`--ips: "${wrong}" is not an address or CIDR block, such as 203.0.113.0/24.`, 2)
}

function readCost(text: string) {
  const cost = readAmount('max-cost', text)
  if (cost > zero) return cost
  throw new CommandError('--max-cost must be above 0. Use none to remove the cap.', 2)
}

/** `all` is an empty list: no restriction. */
function readList(text: string | boolean | undefined): readonly string[] | undefined {
  if (text === undefined) return undefined
  if (text === 'all') return []
  const items = String(text)
    .split(',')
    .map((item) => item.trim())
    .filter((item) => item !== '')
  if (items.length === 0) throw new CommandError('Use a list separated by commas, or all for no restriction.', 2)
  return [...new Set(items)]
}
