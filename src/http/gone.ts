import type { ServerResponse } from 'node:http'

/**
 * Aborts when the client has left before its answer was whole. The request's own `close` event is of no use here: it fires
 * as soon as the body is read.
 */
export function goneSignal(outgoing: ServerResponse): AbortSignal {
  const controller = new AbortController()
  const check = () => {
    if (!outgoing.writableFinished) controller.abort(new ClientGoneError())
  }
  if (outgoing.destroyed || outgoing.closed) check()
  else outgoing.once('close', check)
  return controller.signal
}

/** Not an error of anybody: the client has left, and what follows is the cancel rule. */
export class ClientGoneError extends Error {
  constructor() {
    super('the client left before its answer was whole')
    this.name = 'ClientGoneError'
  }
}
