import type { IncomingMessage } from 'node:http'
import { ServiceError } from '../errors.ts'
import type { BodyBudget, OpenBody } from './body-budget.ts'

export type BodyLimits = {
  readonly bytesMax: number
  readonly readMsMax: number
  /** One for all bodies of the process. */
  readonly budget: BodyBudget
}

/**
 * The whole body, or a refusal as soon as it is known to be too large, too slow, too much or of another kind than JSON. A large one is
 * handed over when it is the account's turn to have one parsed: parse it before waiting for anything else.
 */
export async function readJsonBytes(incoming: IncomingMessage, limits: BodyLimits, account: string): Promise<Buffer> {
  if (Number(incoming.headers['content-length'] ?? 0) > limits.bytesMax) throw new BodyTooLargeError(limits.bytesMax)
  checkMediaType(incoming)
  return collect(incoming, limits, limits.budget.open(account))
}

// Listeners, not `for await`: leaving an async iteration early would destroy the socket that the refusal must still use.
function collect(incoming: IncomingMessage, { bytesMax, readMsMax }: BodyLimits, body: OpenBody): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    let pieces = new Pieces()
    const take = (chunk: Buffer) => {
      pieces.add(chunk)
      // Counted as it arrives: a content-length promises, and holds no memory.
      const refusal = body.add(chunk.length)
      if (body.bytes > bytesMax) refuse(new BodyTooLargeError(bytesMax))
      else if (refusal !== undefined) refuse(refusal)
    }
    const stopReading = () => {
      clearTimeout(timer)
      // A listener that stays would keep the body for as long as it is answered.
      incoming.off('data', take).off('close', onClose).off('error', refuse)
    }
    const stop = () => {
      stopReading()
      body.close()
    }
    const refuse = (error: Error) => {
      stop()
      pieces = new Pieces()
      incoming.pause()
      reject(error)
    }
    // Every request is closed in the end: an error made for nothing would cost more than reading the body.
    const onClose = () => refuse(new UploadCutError())
    const timer = setTimeout(() => refuse(new RequestTimeoutError(readMsMax)), readMsMax)
    incoming.on('data', take)
    const finish = () => {
      stop()
      resolve(pieces.join())
    }
    incoming.once('end', () => {
      stopReading()
      const turn = body.turn()
      if (turn === undefined) finish()
      else void turn.then(() => (incoming.socket.destroyed ? refuse(new UploadCutError()) : finish()))
    })
    incoming.once('error', refuse)
    incoming.once('close', onClose)
    // It may have left while its key was looked up: then no event will ever come.
    if (incoming.destroyed) onClose()
  })
}

const loosePiecesMax = 256

/**
 * What has arrived of a body. A piece takes half a kilobyte beside its bytes, and a client decides how small pieces are: four
 * million of one byte each would take two gigabytes, so they are put together as they come.
 */
class Pieces {
  readonly #joined: Buffer[] = []
  #loose: Buffer[] = []

  add(piece: Buffer): void {
    this.#loose.push(piece)
    if (this.#loose.length < loosePiecesMax) return
    this.#joined.push(Buffer.concat(this.#loose))
    this.#loose = []
  }

  join(): Buffer {
    if (this.#joined.length === 0 && this.#loose.length === 1) return this.#loose[0]!
    return Buffer.concat([...this.#joined, ...this.#loose])
  }
}

function checkMediaType(incoming: IncomingMessage): void {
  const type = incoming.headers['content-type']?.split(';', 1)[0]?.trim().toLowerCase() ?? ''
  if (type !== '' && type !== 'application/json' && !type.endsWith('+json')) throw new UnsupportedMediaTypeError(type)
  const encoding = incoming.headers['content-encoding']
  if (encoding !== undefined && encoding !== 'identity')
    throw new UnsupportedMediaTypeError(`${encoding}-encoded content`)
}

export class BodyTooLargeError extends ServiceError {
  readonly code = 'body_too_large'
  constructor(bytesMax: number) {
    super(`The request body is larger than ${bytesMax} bytes, the limit. Shorten the conversation and try again.`)
  }
}

export class UnsupportedMediaTypeError extends ServiceError {
  readonly code = 'unsupported_media_type'
  constructor(got: string) {
    super(`The body must be JSON, sent with "content-type: application/json"; got ${got.slice(0, 100)}.`)
  }
}

export class RequestTimeoutError extends ServiceError {
  readonly code = 'request_timeout'
  constructor(waitedMs: number) {
    super(`The request body did not arrive within ${Math.round(waitedMs / 1000)} s. Send it again.`)
  }
}

/** The client went away while it was still sending: there is nobody to answer and nothing was held. */
export class UploadCutError extends Error {
  constructor() {
    super('the client left before its request was whole')
    this.name = 'UploadCutError'
  }
}
