import { Agent, type RequestOptions } from 'node:http'
import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import type { Transport } from './exchange.ts'

/** How to get a connection for a request: an open one of the same key, or else a new one. */
export type KeptConnection = {
  /** Requests with the same key share connections, and no others. It must name the origin. */
  readonly key: string
  /** Opens a connection to an address that it has checked. */
  readonly open: () => Promise<Socket>
}

const keptMs = 5_000
const keptMax = 200

/** Keeps connections open for a few seconds after a request, one for each key: an endpoint with many events is not dialled for each of them. */
export class KeptConnections extends Agent {
  constructor() {
    super({ keepAlive: true, maxFreeSockets: 1, timeout: keptMs })
  }

  transportFor(connection: KeptConnection): Transport {
    const options = { agent: this, ...connection }
    return options
  }

  override getName(options: RequestOptions & Partial<KeptConnection> = {}): string {
    return options.key as string
  }

  override createConnection(
    options: RequestOptions,
    callback: (error: Error | null, socket: Duplex) => void,
  ): undefined {
    const { open } = options as unknown as KeptConnection
    open().then(
      (socket) => callback(null, socket),
      (error: Error) => callback(error, undefined as never),
    )
  }

  override keepSocketAlive(socket: Duplex): boolean {
    const kept = Object.values(this.freeSockets).reduce((sum, sockets) => sum + (sockets?.length ?? 0), 0)
    return kept < keptMax && (super.keepSocketAlive(socket as Socket) as unknown as boolean)
  }
}
