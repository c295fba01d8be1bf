import type { ServerResponse } from 'node:http'
import type { ServedRequest } from './load.ts'

/**
 * Aborts when the client disconnects before the answer is complete, or when the service stops the request (with its reason). Listens to
 * the response: the `close` event of the request fires as soon as the body is read.
 */
export function disconnectSignal(outgoing: ServerResponse, request?: ServedRequest): AbortSignal {
  const controller = new AbortController()
  const check = () => {
    if (!outgoing.writableFinished) controller.abort(new ClientDisconnectedError())
  }
  if (isOver(outgoing)) check()
  else outgoing.once('close', check)
  if (request !== undefined) request.stop = (reason) => controller.abort(reason)
  return controller.signal
}

/** Resolves when the whole answer was written to the socket, or the client has disconnected. */
export function responseClosed(outgoing: ServerResponse): Promise<void> {
  return new Promise((resolve) => {
    if (isOver(outgoing)) resolve()
    else outgoing.once('close', resolve)
  })
}

function isOver(outgoing: ServerResponse): boolean {
  return outgoing.destroyed || outgoing.closed
}

/** The client disconnected. Not a failure: the cancel rule decides the charge. */
export class ClientDisconnectedError extends Error {
  constructor() {
    super('the client disconnected before the answer was complete')
    this.name = 'ClientDisconnectedError'
  }
}
