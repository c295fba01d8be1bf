import type { Hono } from 'hono'
import { routeAccount } from './account.ts'
import { routeExport } from './export.ts'
import { routeFunds } from './funds.ts'
import type { Gate } from './gate.ts'
import { routeKeys } from './keys.ts'
import { routeOverview } from './overview.ts'
import { routeQuote } from './quote.ts'
import { routeRequests } from './requests.ts'
import { type ApiBindings, ApiRouter } from './router.ts'
import { routeSandbox } from './sandbox.ts'
import type { ApiServices } from './services.ts'
import { routeSignIn } from './sign-in.ts'
import { routeStatement } from './statement.ts'
import { routeStatus } from './status.ts'
import { routeStream } from './stream.ts'
import { routeUsage } from './usage.ts'

/** Every route of the dashboard, each behind its contract. */
export function routeApi(app: Hono<ApiBindings>, gate: Gate, services: ApiServices): void {
  const { trustProxy, bodyLimits } = services
  const router = new ApiRouter({ app, gate, trustProxy, chatBodyLimits: bodyLimits })
  routeSignIn(router, services)
  routeAccount(router, services)
  routeRequests(router, services)
  routeUsage(router, services)
  routeOverview(router, services)
  routeKeys(router, services)
  routeFunds(router, services)
  routeStatement(router, services)
  routeStatus(router, services)
  routeSandbox(router, services)
  routeQuote(router, services)
  routeStream(router, services)
  routeExport(router, services)
}
