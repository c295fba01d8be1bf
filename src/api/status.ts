import type { Health } from '../http/health.ts'
import { statusContracts } from '../openapi/contracts/status.ts'
import type { ApiRouter } from './router.ts'
import type { ApiServices } from './services.ts'

/** `GET /api/status`: public. */
export function routeStatus(router: ApiRouter, { health }: ApiServices): void {
  router.at(statusContracts.getStatus).answer(async () => ({
    object: 'status',
    ...render(await health.latest()),
    history: health.history.slots.map((slot) => ({ start: slot.start.toISOString(), ...render(slot) })),
  }))
}

function render({ isReady, model, search, chain, databaseMs }: Health) {
  const ms = databaseMs === undefined ? null : Math.round(databaseMs)
  return { ok: isReady, model, search, chain, database_ms: ms }
}
