import { BlockList, isIPv4, isIPv6 } from 'node:net'
import { ServiceError } from '../errors.ts'
import type { Usdc } from '../money/usdc.ts'

/** Restrictions of a key, besides its limit and expiry. */
export type KeyOptions = {
  /** Incremented by every change of the options. */
  readonly version: number
  /** Models the key may use; empty: all. */
  readonly allowedModels: readonly string[]
  /** The maximum cost of one request, searches included. */
  readonly maxRequestCost: Usdc | undefined
  /** False: web search and web fetch are never offered to the model. */
  readonly webTools: boolean
  /** Addresses and CIDR blocks, IPv4 and IPv6; empty: all. */
  readonly allowedIps: readonly string[]
}

export const noOptions: KeyOptions = {
  version: 0,
  allowedModels: [],
  maxRequestCost: undefined,
  webTools: true,
  allowedIps: [],
}

export const allowedModelsMax = 100
export const allowedIpsMax = 100

/** Fields that are left out stay. `null` removes the cap. */
export type OptionChanges = {
  readonly allowedModels?: readonly string[] | undefined
  readonly maxRequestCost?: Usdc | null | undefined
  readonly webTools?: boolean | undefined
  readonly allowedIps?: readonly string[] | undefined
}

export const optionColumns = ['allowed_models', 'max_request_cost', 'web_tools', 'allowed_ips'] as const

/** The columns that `readOptions` needs. */
export const readColumns = [...optionColumns, 'options_version'] as const

export type OptionRow = Omit<KeyOptions, 'version'> & { readonly optionsVersion: number }

export function readOptions({
  optionsVersion,
  allowedModels,
  maxRequestCost,
  webTools,
  allowedIps,
}: OptionRow): KeyOptions {
  return { version: optionsVersion, allowedModels, maxRequestCost, webTools, allowedIps }
}

/** Throws when the key may not be used from this address. Spellings are normalized: `::ffff:192.0.2.1` is 192.0.2.1. */
export function checkAddress({ allowedIps }: KeyOptions, address: string): void {
  if (allowedIps.length > 0 && !isListed(allowedIps, address))
    throw new ServiceError(
      'ip_not_allowed',
      `This API key may not be used from ${address.slice(0, 64)}. Use it from one of its allowed addresses, or change them in the dashboard.`,
    )
}

/** Whether this is an address or a CIDR block, such as 192.0.2.7, 192.0.2.0/24 or 2001:db8::/32. */
export function isNetwork(text: string): boolean {
  const [address = '', prefix, ...rest] = text.split('/')
  const bits = isIPv4(address) ? 32 : isIPv6(address) && !address.includes('%') ? 128 : undefined
  if (bits === undefined || rest.length > 0) return false
  return prefix === undefined || (/^(0|[1-9]\d{0,2})$/.test(prefix) && Number(prefix) <= bits)
}

function isListed(networks: readonly string[], address: string): boolean {
  const plain = plainAddress(address)
  if (!isIPv4(plain) && !isIPv6(plain)) return false
  const list = new BlockList()
  for (const network of networks) {
    const [start = '', prefix] = network.split('/')
    const family = isIPv4(start) ? 'ipv4' : 'ipv6'
    list.addSubnet(start, prefix === undefined ? (family === 'ipv4' ? 32 : 128) : Number(prefix), family)
  }
  return list.check(plain, isIPv4(plain) ? 'ipv4' : 'ipv6')
}

/** Removes a zone, and turns an IPv4-mapped IPv6 address (as dual-stack sockets report it) into IPv4. */
function plainAddress(address: string): string {
  const zoneless = address.replace(/%.*$/, '')
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(zoneless)
  return mapped === null ? zoneless : mapped[1]!
}
