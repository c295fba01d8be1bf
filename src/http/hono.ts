import type { IncomingMessage, ServerResponse } from 'node:http'

export type HonoBindings = {
  Bindings: { incoming: IncomingMessage; outgoing: ServerResponse }
  Variables: { requestId: string }
}

/** Translates `/api/keys/{id}` of a contract into Hono's syntax. */
export function honoPath(path: string): string {
  return path.replace(/\{(\w+)\}/g, ':$1')
}
