import type { IncomingMessage, ServerResponse } from 'node:http'

/** What every route that goes through Hono can reach. */
export type HonoBindings = {
  Bindings: { incoming: IncomingMessage; outgoing: ServerResponse }
  Variables: { requestId: string }
}

/** `/api/keys/{id}` of a contract as Hono writes it. */
export function honoPath(path: string): string {
  return path.replace(/\{(\w+)\}/g, ':$1')
}
