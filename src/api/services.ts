import type { PriceList } from '../billing/price-list.ts'
import type { Database } from '../db/database.ts'
import type { HealthMonitor } from '../http/health-monitor.ts'
import type { Site } from '../http/origin.ts'
import type { Operators } from '../identity/operators.ts'
import type { Usdc } from '../money/usdc.ts'
import type { Log } from '../process/log.ts'
import type { ProviderHealth } from '../providers/provider.ts'
import type { ChatRouteServices } from '../v1/create-chat-completion.ts'
import type { ChainServices } from './chain-services.ts'

/** What the dashboard's routes are made of. */
export type ApiServices = ChatRouteServices & {
  readonly database: Database
  /** Connections for sessions, keys and quotes, which the dashboard's own queries cannot occupy. */
  readonly lookUps: Database
  /** A small pool of its own: what an operator looks at cannot keep customers waiting. */
  readonly operatorDatabase: Database
  readonly operators: Operators
  readonly site: Site
  readonly chainServices: ChainServices
  readonly health: HealthMonitor
  /** As this node sees them. For operators only. */
  readonly providers: () => readonly ProviderHealth[]
  readonly prices: PriceList
  readonly ledgerPartitions: number
  readonly inFlightCap: Usdc
  readonly unsettledCap: Usdc
  /** Webhook endpoints on this machine: see `allowsLoopbackWebhooks` of the configuration. */
  readonly allowsLoopbackWebhooks: boolean
  /** Alerts can be mailed. */
  readonly sendsMail: boolean
  readonly log: Pick<Log, 'info' | 'warn'>
  /** Milliseconds, for rates. */
  readonly now: () => number
}
