import type { PriceList } from '../../billing/price-list.ts'
import type { Database } from '../../db/database.ts'
import type { Log } from '../../log.ts'
import type { Usdc } from '../../money/usdc.ts'
import type { HealthMonitor } from '../health-monitor.ts'
import type { ChatRouteServices } from '../routes/create-chat-completion.ts'
import type { Site } from '../site.ts'
import type { ChainSide } from './chain-side.ts'

/** What the dashboard's routes are made of. */
export type ApiServices = ChatRouteServices & {
  readonly database: Database
  readonly site: Site
  readonly chainSide: ChainSide
  readonly health: HealthMonitor
  readonly prices: PriceList
  readonly ledgerPartitions: number
  readonly inFlightCap: Usdc
  readonly unsettledCap: Usdc
  readonly trustProxy: boolean
  readonly log: Pick<Log, 'info' | 'warn'>
  /** Milliseconds, for rates. */
  readonly now: () => number
}
