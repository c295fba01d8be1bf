import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type NetConnectOpts, type Server, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'

/** How a connection ends: cleanly on both sides, in one direction only, or by a reset. */
export type Cut = 'close' | 'half-close' | 'reset'

export type Rule =
  | { readonly type: 'pass' }
  /** Delays everything, in both directions. */
  | { readonly type: 'delay'; readonly ms: number }
  /** Resets new connections; open ones continue. */
  | { readonly type: 'refuse' }
  /** Cuts the connection after this many bytes from one side. Once. */
  | { readonly type: 'cut-at-byte'; readonly from: Side; readonly bytes: number; readonly how: Cut }
  /**
   * Cuts the connection on which the client sends this text. `reply-lost`: the server receives and executes it, and its reply is
   * lost. `unheard`: the server never receives it. Once.
   */
  | { readonly type: 'cut-on'; readonly pattern: string; readonly when: 'reply-lost' | 'unheard' }
  /** Resets the connection of the client that sends this text. The server receives the text only later, as from a slow network. Once. */
  | { readonly type: 'deliver-late'; readonly pattern: string; readonly ms: number }

export type Side = 'client' | 'server'

const pass: Rule = { type: 'pass' }

/** A TCP proxy that injects network faults. */
export class TcpProxy {
  readonly port: number
  readonly #server: Server
  readonly #target: () => NetConnectOpts
  readonly #links = new Set<Link>()
  readonly #late = new Set<Promise<void>>()
  #rule: Rule = pass
  #refused = 0
  #fired = Promise.withResolvers<void>()

  /** `target` is called for every connection: the server behind the proxy may move. */
  static async open(target: () => NetConnectOpts): Promise<TcpProxy> {
    const server = createServer({ allowHalfOpen: true, noDelay: true })
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    return new TcpProxy(server, target)
  }

  private constructor(server: Server, target: () => NetConnectOpts) {
    this.#server = server
    this.#target = target
    this.port = (server.address() as AddressInfo).port
    server.on('connection', (client) => this.#accept(client))
  }

  /** Sets the rule. Resolves when a rule that cuts has done so; after that everything passes again. */
  use(rule: Rule): Promise<void> {
    this.#rule = rule
    this.#fired = Promise.withResolvers<void>()
    return this.#fired.promise
  }

  /** Number of refused connections. */
  get refused(): number {
    return this.#refused
  }

  /** Cuts all open connections. Returns how many there were. */
  cutAll(how: Cut): number {
    const open = [...this.#links]
    for (const link of open) link.cut(how)
    return open.length
  }

  /** Resolves when the servers have executed everything that is late. */
  async delivered(): Promise<void> {
    await Promise.all(this.#late)
  }

  async close(): Promise<void> {
    await this.delivered()
    const closed = once(this.#server, 'close')
    this.#server.close()
    this.cutAll('reset')
    await closed
  }

  #accept(client: Socket): void {
    if (this.#rule.type === 'refuse') {
      this.#refused += 1
      reset(client)
      return
    }
    const server = connect({ ...this.#target(), allowHalfOpen: true, noDelay: true } as NetConnectOpts)
    const link = new Link(client, server)
    this.#links.add(link)
    const forget = () => {
      if (client.destroyed && server.destroyed) this.#links.delete(link)
    }
    for (const socket of [client, server]) socket.on('error', () => link.cut('reset')).on('close', forget)
    void this.#pump(link, 'client')
    void this.#pump(link, 'server')
  }

  async #pump(link: Link, side: Side): Promise<void> {
    const [from, to] = side === 'client' ? [link.client, link.server] : [link.server, link.client]
    try {
      for await (const chunk of from.iterator({ destroyOnReturn: false })) {
        await passOn(to, await this.#judge(link, side, chunk as Buffer))
        if (to.destroyed) link.cut('reset')
        if (link.isCut && !link.isLate) return
      }
      to.end()
    } catch {
      link.cut('reset')
    }
  }

  /** The part of a chunk that passes. When this returns, the rule has been applied to the connection. */
  async #judge(link: Link, side: Side, chunk: Buffer): Promise<Buffer> {
    if (side === 'server' && link.isReplyDoomed) return this.#fire(link, 'reset')
    const rule = this.#rule
    if (rule.type === 'delay') await sleep(rule.ms)
    const before = link.count(side, chunk.length)
    if (rule.type === 'cut-at-byte' && rule.from === side && before + chunk.length > rule.bytes) {
      const room = Math.max(0, rule.bytes - before)
      this.#write(link, side, chunk.subarray(0, room))
      return this.#fire(link, rule.how)
    }
    if (!('pattern' in rule) || side !== 'client' || !link.hears(chunk, rule.pattern)) return chunk
    if (rule.type === 'deliver-late') {
      const delivery = link.deliverLate(chunk, rule.ms).finally(() => this.#late.delete(delivery))
      this.#late.add(delivery)
      return this.#fire(link, 'reset')
    }
    if (rule.when === 'unheard') return this.#fire(link, 'reset')
    link.isReplyDoomed = true
    this.#rule = pass
    return chunk
  }

  #write(link: Link, side: Side, bytes: Buffer): void {
    const to = side === 'client' ? link.server : link.client
    if (bytes.length > 0) to.write(bytes)
  }

  #fire(link: Link, how: Cut): Buffer {
    this.#rule = pass
    link.cut(how)
    this.#fired.resolve()
    return nothing
  }
}

const nothing = Buffer.alloc(0)

/** Resolves when the socket accepts more. After a half-close, nothing more is written. */
async function passOn(to: Socket, bytes: Buffer): Promise<void> {
  if (bytes.length === 0 || to.destroyed || to.writableEnded || to.write(bytes)) return
  await Promise.race([once(to, 'drain'), once(to, 'close')])
}

/** One connection through the proxy. */
class Link {
  readonly client: Socket
  readonly server: Socket
  isCut = false
  /** The client's data passes, the server's reply does not. */
  isReplyDoomed = false
  /** The server still reads and answers, without a client. */
  isLate = false
  readonly #bytes = { client: 0, server: 0 }
  #heard: Buffer = nothing

  constructor(client: Socket, server: Socket) {
    this.client = client
    this.server = server
  }

  /** Adds to the bytes received from that side; returns the count before. */
  count(side: Side, bytes: number): number {
    const before = this.#bytes[side]
    this.#bytes[side] += bytes
    return before
  }

  /** Whether the client has sent the pattern, even if it is split between two chunks. */
  hears(chunk: Buffer, pattern: string): boolean {
    const said = Buffer.concat([this.#heard, chunk])
    this.#heard = said.subarray(Math.max(0, said.length - pattern.length + 1))
    return said.includes(pattern)
  }

  /** From now on only the client can be cut off. Resolves when the server has closed the connection. */
  async deliverLate(bytes: Buffer, ms: number): Promise<void> {
    this.isLate = true
    const { server } = this
    // Not `once`, which fails when PostgreSQL is killed meanwhile.
    const closed = new Promise<void>((resolve) => (server.destroyed ? resolve() : server.once('close', resolve)))
    await sleep(ms)
    server.end(bytes)
    await closed
  }

  cut(how: Cut): void {
    if (how === 'half-close') {
      this.client.end()
      return
    }
    this.isCut = true
    for (const socket of this.isLate ? [this.client] : [this.client, this.server]) {
      if (how === 'reset') reset(socket)
      else socket.destroySoon()
    }
  }
}

/** A unix socket has no reset. A socket that is being shut down must not be reset: Node would never release it. */
function reset(socket: Socket): void {
  if (socket.remoteFamily === undefined || socket.writableEnded) socket.destroy()
  else socket.resetAndDestroy()
}
