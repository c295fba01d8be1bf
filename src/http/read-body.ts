import type { IncomingMessage } from 'node:http'
import { ServiceError } from '../errors.ts'
import type { BodyBudget, OpenBody } from './body-budget.ts'

export type BodyLimits = {
  readonly bytesMax: number
  readonly readMsMax: number
  /** Shared by all bodies of the process. */
  readonly budget: BodyBudget
}

/** Whether the request has a body, according to its headers. */
export function hasBody({ headers }: IncomingMessage): boolean {
  return Number(headers['content-length']) > 0 || headers['transfer-encoding'] !== undefined
}

/**
 * Reads the whole body. Throws as soon as it is known to be too large, too slow, beyond the budget or not JSON. A large body is returned
 * when it is the account's turn to parse (see `ParsingTurns`): parse it before you await anything else.
 */
export async function readJsonBytes(incoming: IncomingMessage, limits: BodyLimits, account: string): Promise<Buffer> {
  const length = Number(incoming.headers['content-length'] ?? 0)
  if (length > limits.bytesMax) throw new BodyTooLargeError(limits.bytesMax, length)
  checkMediaType(incoming)
  return collect(incoming, limits, limits.budget.open(account))
}

// Listeners, not `for await`: leaving an async iteration early would destroy the socket, which the error response still needs.
function collect(incoming: IncomingMessage, { bytesMax, readMsMax }: BodyLimits, body: OpenBody): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    let pieces = new Pieces()
    const take = (chunk: Buffer) => {
      pieces.add(chunk)
      // Received bytes count, not the content-length: only they occupy memory.
      const refusal = body.add(chunk.length)
      if (body.bytes > bytesMax) refuse(new BodyTooLargeError(bytesMax))
      else if (refusal !== undefined) refuse(refusal)
    }
    const stopReading = () => {
      clearTimeout(timer)
      // A remaining listener would keep the body in memory until the answer ends.
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
    // Creates the error only when needed: every request closes eventually, and an unused error would cost more than reading a body.
    const onClose = () => refuse(new UploadAbortedError())
    const timer = setTimeout(
      () =>
        refuse(
          new ServiceError(
            'request_timeout',
            `The request body did not arrive within ${Math.round(readMsMax / 1000)} s. Send it again.`,
          ),
        ),
      readMsMax,
    )
    incoming.on('data', take)
    const finish = () => {
      stop()
      resolve(pieces.join())
    }
    incoming.once('end', () => {
      stopReading()
      const turn = body.turn()
      if (turn === undefined) finish()
      else void turn.then(() => (incoming.socket.destroyed ? refuse(new UploadAbortedError()) : finish()))
    })
    incoming.once('error', refuse)
    incoming.once('close', onClose)
    // If the client disconnected during the lookup of its key, no event follows.
    if (incoming.destroyed) onClose()
  })
}

const loosePiecesMax = 256

/**
 * The received part of a body. A chunk has an overhead of half a kilobyte, and the client decides how small chunks are: four million
 * chunks of one byte would take two gigabytes. So small chunks are merged as they arrive.
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
  /** `bytes` is unknown while a chunked body arrives. */
  constructor(bytesMax: number, bytes?: number) {
    const excess = bytes === undefined ? `is larger than the limit of` : `is ${sizeOf(bytes)}; the limit is`
    super('body_too_large', `The request body ${excess} ${sizeOf(bytesMax)}. Send less text.`)
  }
}

/** Rounded up, so that a body above the limit never seems to have its size. */
function sizeOf(bytes: number): string {
  const mebibytes = bytes / 1024 / 1024
  return mebibytes < 1 ? `${Math.ceil(bytes / 1024)} KiB` : `${Math.ceil(mebibytes * 10) / 10} MiB`
}

export class UnsupportedMediaTypeError extends ServiceError {
  constructor(got: string) {
    super(
      'unsupported_media_type',
      `The body must be JSON, sent with "content-type: application/json"; got ${got.slice(0, 100)}.`,
    )
  }
}

/** The client disconnected during the upload. Nothing was held. */
export class UploadAbortedError extends Error {
  constructor() {
    super('the client disconnected before the request was complete')
    this.name = 'UploadAbortedError'
  }
}
