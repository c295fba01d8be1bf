import type { ServerResponse } from 'node:http'
import { Readable } from 'node:stream'
import type { AccountRef } from '../db/account-ref.ts'
import { Shares } from '../fairness/shares.ts'
import { responseClosed } from '../http/disconnect.ts'

export type DownloadLimits = {
  /** Concurrent downloads of all accounts. */
  readonly filesMax: number
  /** A client that reads nothing for this long is disconnected. */
  readonly blockedMsMax: number
}

export type FileReader = { readonly owner: AccountRef; readonly outgoing: ServerResponse }

export type DownloadedFile = {
  /** Pieces of text. May be empty: a client that has left is noticed between two of them. */
  readonly text: AsyncIterable<string>
  readonly type: string
  readonly name: string
}

/** An account may always have as many downloads while there is room: the log and the whole account. */
const accountFilesMin = 2
/** Bytes per millisecond that a client must read: few slow clients would keep all others from their files. */
const readRateMin = 16

/** Files that are produced while the client reads them. Limits how many run concurrently. */
export class Downloads {
  readonly #limits: DownloadLimits
  readonly #places: Shares

  constructor(limits: DownloadLimits) {
    this.#limits = limits
    this.#places = new Shares({ what: 'downloads', capacity: limits.filesMax, floor: accountFilesMin })
  }

  /** Throws when there is no place. */
  start(reader: FileReader, { text, type, name }: DownloadedFile): Response {
    const body = Readable.from(this.#takePlace(reader, text), { objectMode: false, highWaterMark: 64 * 1024 })
    return new Response(Readable.toWeb(body) as ConstructorParameters<typeof Response>[0], {
      headers: {
        'content-type': type,
        'content-disposition': `attachment; filename="${name}"`,
        'cache-control': 'no-store',
      },
    })
  }

  #takePlace({ owner, outgoing }: FileReader, text: AsyncIterable<string>): AsyncIterable<string> {
    const { blockedMsMax } = this.#limits
    const places = this.#places
    places.acquire(owner.accountId)
    let isProducing = false
    // For a HEAD request nothing is produced.
    void responseClosed(outgoing).then(() => isProducing || places.release(owner.accountId))
    return (async function* () {
      if (outgoing.destroyed) return
      isProducing = true
      try {
        yield* readInTime(text, outgoing, blockedMsMax)
      } finally {
        // Not when the client leaves: the query that is running for it goes on.
        places.release(owner.accountId)
      }
    })()
  }
}

/** Disconnects a client that reads too slowly. The time that we need to produce a piece does not count. */
async function* readInTime(
  text: AsyncIterable<string>,
  outgoing: ServerResponse,
  blockedMsMax: number,
): AsyncGenerator<string> {
  let late: NodeJS.Timeout | undefined
  // The last piece is read after this function has ended.
  outgoing.once('close', () => clearTimeout(late))
  for await (const piece of text) {
    if (outgoing.destroyed) return
    late = setTimeout(() => outgoing.req.socket.destroy(), blockedMsMax + piece.length / readRateMin).unref()
    yield piece
    clearTimeout(late)
  }
}
