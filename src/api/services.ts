import type { PriceList } from '../billing/price-list.ts'
import type { Database } from '../db/database.ts'
import type { HealthMonitor } from '../http/health.ts'
import type { Site } from '../http/origin.ts'
import type { Operators } from '../identity/operators.ts'
import type { Usdc } from '../money/usdc.ts'
import type { Log } from '../process/log.ts'
import type { ProviderHealth } from '../providers/provider.ts'
import type { ChatRouteServices } from '../v1/create-chat-completion.ts'
import type { ChainServices } from './chain-services.ts'

/** Dependencies of the dashboard's routes. */
export type ApiServices = ChatRouteServices & {
  readonly database: Database
  /** A separate pool for sessions, keys and quotes, so that dashboard queries cannot block them. */
  readonly lookUps: Database
  /** A small separate pool, so that the operator's queries cannot delay customers. */
  readonly operatorDatabase: Database
  readonly operators: Operators
  readonly site: Site
  readonly chainServices: ChainServices
  readonly health: HealthMonitor
  /** As seen by this node. For operators only. */
  readonly providers: () => readonly ProviderHealth[]
  readonly prices: PriceList
  readonly ledgerPartitions: number
  readonly inFlightCap: Usdc
  readonly unsettledCap: Usdc
  readonly withdrawalMin: Usdc
  /** See the configuration. */
  readonly allowsLoopbackWebhooks: boolean
  /** Whether alerts can be mailed. */
  readonly sendsMail: boolean
  readonly log: Pick<Log, 'info' | 'warn'>
  /** Milliseconds, for rates. */
  readonly now: () => number
}
