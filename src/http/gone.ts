import type { ServerResponse } from 'node:http'
import type { ServedRequest } from './load.ts'

/**
 * Aborts when the client has left before its answer was whole, or when the request is stopped, with the reason of that. The request's own `close` event is of no use here: it fires as soon as the body is read.
 */
export function goneSignal(outgoing: ServerResponse, request?: ServedRequest): AbortSignal {
  const controller = new AbortController()
  const check = () => {
    if (!outgoing.writableFinished) controller.abort(new ClientGoneError())
  }
  if (isOver(outgoing)) check()
  else outgoing.once('close', check)
  if (request !== undefined) request.stop = (reason) => controller.abort(reason)
  return controller.signal
}

/** Resolves when the last byte of an answer has left, or there is nobody to take it. */
export function hasLeft(outgoing: ServerResponse): Promise<void> {
  return new Promise((resolve) => {
    if (isOver(outgoing)) resolve()
    else outgoing.once('close', resolve)
  })
}

function isOver(outgoing: ServerResponse): boolean {
  return outgoing.destroyed || outgoing.closed
}

/** Not an error of anybody: the client has left, and what follows is the cancel rule. */
export class ClientGoneError extends Error {
  constructor() {
    super('the client left before its answer was whole')
    this.name = 'ClientGoneError'
  }
}
