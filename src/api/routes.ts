import type { Hono } from 'hono'
import type { HonoBindings } from '../http/hono.ts'
import { routeAccount } from './account.ts'
import { routeAlerts } from './alerts.ts'
import { DepositAddresses } from './deposit-addresses.ts'
import { routeDevices } from './devices.ts'
import { Downloads } from './downloads.ts'
import { routeExport } from './export.ts'
import { routeFunds } from './funds.ts'
import type { GateOfRoutes } from './gate.ts'
import { routeInvitations } from './invitations.ts'
import { routeKeys } from './keys.ts'
import { recordRefusals } from './log-account-event.ts'
import { routeManagementKeys } from './management-keys.ts'
import { routeMembers } from './members.ts'
import { routeOperator } from './operator.ts'
import { routeOverview } from './overview.ts'
import { routeQuote } from './quote.ts'
import { routeReceipts } from './receipts.ts'
import { routeRequests } from './requests.ts'
import { ApiRouter } from './router.ts'
import { routeSandbox } from './sandbox.ts'
import type { ApiServices } from './services.ts'
import { routeSignIn } from './sign-in.ts'
import { routeStatement } from './statement.ts'
import { routeStatus } from './status.ts'
import { routeStream } from './stream.ts'
import { routeUsage } from './usage.ts'
import { routeWebhooks } from './webhooks.ts'

/** Each holds up to a thousand rows in memory while its client reads. */
const downloadsMax = 24

/** Every route of the dashboard, each behind its contract. */
export function routeApi(app: Hono<HonoBindings>, gate: GateOfRoutes, services: ApiServices): void {
  const { trustProxy, bodyLimits, unpaid } = services
  const onRoleRefused = recordRefusals(services)
  const router = new ApiRouter({ app, gate, trustProxy, chatBodyLimits: bodyLimits, unpaid, onRoleRefused })
  const addresses = new DepositAddresses(services)
  const downloads = new Downloads({ filesMax: downloadsMax, blockedMsMax: services.answering.blockedMsMax })
  routeSignIn(router, services)
  routeDevices(router, services, addresses)
  routeAccount(router, services)
  routeRequests(router, services, downloads)
  routeUsage(router, services)
  routeOverview(router, services)
  routeKeys(router, services, addresses)
  routeMembers(router, services)
  routeInvitations(router, services)
  routeManagementKeys(router, services)
  routeWebhooks(router, services)
  routeAlerts(router, services)
  routeFunds(router, services, addresses)
  routeReceipts(router, services, downloads)
  routeStatement(router, services)
  routeStatus(router, services)
  routeSandbox(router, services)
  routeQuote(router, services)
  routeStream(router, services)
  routeOperator(router, services)
  routeExport(router, gate, services, downloads)
}
