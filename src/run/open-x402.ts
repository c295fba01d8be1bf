import type { ChainConfig } from '../config/config.ts'
import { ServiceError } from '../errors.ts'
import { createGatewayClient } from '../settlement/gateway-client.ts'
import { findPublishedTerms } from '../settlement/published-terms.ts'
import type { SettlementEndpoints } from '../settlement/settlement-endpoints.ts'
import type { SigningTerms } from '../signer/signing-terms.ts'
import type { PaidHoldsParts } from '../x402/paid-holds.ts'
import { x402Terms } from '../x402/terms.ts'
import type { StartContext } from './start-context.ts'
import type { NodeParts } from './web-node.ts'

/** After a change of the seller, machines without a signer ask for payments to the new one within this time. */
const termsMsMax = 10_000
/** Delay before missing or wrong terms are read again: unauthenticated requests must not cause a query each. */
const failureMsMax = 1_000

type X402Node = Pick<NodeParts, 'money' | 'databases' | 'holds' | 'failpoint' | 'publicUrl'>

/**
 * What a node needs to accept payments of wallets. A node that does not settle also submits payments to the gateway and needs no key for
 * that; the machine that settles publishes the seller's address in the database.
 *
 * @returns a function that throws `WalletsUnavailableError` when payments cannot be taken here
 */
export function openX402(
  context: StartContext,
  node: X402Node,
  now = () => performance.now(),
): () => Promise<PaidHoldsParts> {
  const { chain } = context.config
  if (node.money !== undefined) {
    const parts = openParts(context, node, node.money)
    return async () => parts
  }
  if (chain === undefined)
    return async () => {
      throw new WalletsUnavailableError(
        'this machine has no gateway. Use the machine that settles (ROLES=web,jobs), or set CHAIN_RPC_URL, GATEWAY_URL, USDC_ADDRESS and GATEWAY_WALLET_ADDRESS here as they are set there',
      )
    }
  const readParts = termsReader(context, node, chain)
  let latest: { readonly parts: Promise<PaidHoldsParts>; validUntil: number } | undefined
  return () => {
    if (latest === undefined || now() > latest.validUntil) {
      const reading = { parts: readParts(), validUntil: now() + termsMsMax }
      reading.parts.catch(() => (reading.validUntil = now() + failureMsMax))
      latest = reading
    }
    return latest.parts
  }
}

function termsReader(context: StartContext, node: X402Node, chain: ChainConfig): () => Promise<PaidHoldsParts> {
  let known: { readonly terms: string; readonly parts: PaidHoldsParts } | undefined
  return async () => {
    const published = await findPublishedTerms(node.databases.lookUps)
    if (published === undefined) {
      throw new WalletsUnavailableError(
        'settlement has not started yet. Start a machine with ROLES=web,jobs on this database',
      )
    }
    const { terms } = published
    refuseOtherTerms(context, terms, chain)
    const text = JSON.stringify(terms)
    if (known?.terms !== text) known = { terms: text, parts: openParts(context, node, { ...chain, terms }) }
    return known.parts
  }
}

function openParts(
  { config, log, stack }: StartContext,
  { databases, holds, failpoint, publicUrl }: X402Node,
  { gatewayUrl: url, gatewayToken: token, terms }: Pick<SettlementEndpoints, 'gatewayUrl' | 'gatewayToken' | 'terms'>,
): PaidHoldsParts {
  const gatewayClient = createGatewayClient({ url, token, domain: terms.gatewayDomain })
  stack.defer(() => gatewayClient.close())
  return {
    database: databases.ledger,
    holds,
    gatewayClient,
    terms: x402Terms(terms, publicUrl),
    inFlightCap: config.inFlightCap,
    failpoint,
    onAlarm: (what, details) => log.error(details, what),
  }
}

/** A payment on another chain or contract than that of settlement would never reach the seller. */
function refuseOtherTerms({ log }: StartContext, { usdc, gatewayWallet }: SigningTerms, chain: ChainConfig): void {
  const settings = [
    ['USDC_ADDRESS', chain.usdcAddress, usdc.address],
    ['GATEWAY_WALLET_ADDRESS', chain.gatewayWalletAddress, gatewayWallet],
  ] as const
  for (const [name, here, there] of settings) {
    if (here.toLowerCase() === there) continue
    log.error({ setting: name, here, there }, 'wallets cannot pay: this machine and settlement use different contracts')
    throw new WalletsUnavailableError(`${name} of this machine is not that of the machine that settles. Correct it`)
  }
}

/** Wallets cannot pay on this machine. */
class WalletsUnavailableError extends ServiceError {
  constructor(reason: string) {
    super(
      'settlement_delayed',
      `Payments over x402 are not available: ${reason}. Nothing was paid. API keys work at /v1.`,
      {
        retryAfterMs: 30_000,
      },
    )
  }
}
