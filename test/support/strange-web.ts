import { once } from 'node:events'
import { createServer as createHttpServer, type RequestListener } from 'node:http'
import { createServer as createHttpsServer } from 'node:https'
import { type AddressInfo, connect, createServer as createTcpServer, type Server, type Socket } from 'node:net'
import type { Resolve } from '../../src/tools/resolve.ts'
import type { Dial } from '../../src/tools/untrusted-socket.ts'

/**
 * An internet on one machine: public addresses lead to servers of the test, names to what the test says. Every other
 * address is really dialled, at the canaries' port, so that a rule that lets one through is heard there.
 */
export type StrangeWeb = {
  readonly resolve: Resolve
  readonly dial: Dial
  /** Every address that a connection was begun to, in order. */
  readonly dialled: readonly string[]
  readonly lookedUp: readonly string[]
  /** What a name answers; a function is asked every time. */
  name(hostname: string, addresses: readonly string[] | (() => readonly string[])): void
  serve(address: string, listener: RequestListener): Promise<void>
  serveEncrypted(address: string, credentials: Credentials, listener: RequestListener): Promise<void>
  /** Bare TCP, for answers that no server would give. */
  serveRaw(address: string, onConnection: (socket: Socket) => void): Promise<void>
  /** Listens where only a broken rule leads. Returns how often it was reached so far. */
  canary(addresses: readonly string[]): Promise<() => number>
  close(): Promise<void>
}

export type Credentials = { readonly key: string; readonly cert: string }

export function strangeWeb(): StrangeWeb {
  const servers: Server[] = []
  const sockets = new Set<Socket>()
  const names = new Map<string, () => readonly string[]>()
  const ports = new Map<string, number>()
  const dialled: string[] = []
  const lookedUp: string[] = []
  let canaryPort = 9
  async function listen(server: Server, host: string, port = 0): Promise<number> {
    server.on('connection', (socket: Socket) => {
      sockets.add(socket)
      socket.on('close', () => sockets.delete(socket))
      socket.on('error', () => {})
    })
    server.listen(port, host)
    await once(server, 'listening')
    servers.push(server)
    return (server.address() as AddressInfo).port
  }
  const place = async (address: string, port: number, server: Server) =>
    void ports.set(`${address} ${port}`, await listen(server, '127.0.0.1'))
  return {
    dialled,
    lookedUp,
    async resolve(hostname) {
      lookedUp.push(hostname)
      const addresses = names.get(hostname)?.() ?? []
      if (addresses.length === 0) throw new Error(`queryA ENOTFOUND ${hostname}`)
      return addresses
    },
    dial(address, port) {
      dialled.push(address)
      const local = ports.get(`${address} ${port}`)
      if (local === undefined) return connect({ host: address, port: canaryPort })
      const socket = connect({ host: '127.0.0.1', port: local })
      Object.defineProperty(socket, 'remoteAddress', { get: () => address, configurable: true })
      return socket
    },
    name: (hostname, addresses) =>
      void names.set(hostname, typeof addresses === 'function' ? addresses : () => addresses),
    serve: (address, listener) => place(address, 80, createHttpServer(listener)),
    serveEncrypted: (address, credentials, listener) => place(address, 443, createHttpsServer(credentials, listener)),
    serveRaw: (address, onConnection) => place(address, 80, createTcpServer(onConnection)),
    async canary(addresses) {
      let reached = 0
      canaryPort = 0
      for (const address of addresses) {
        const server = createTcpServer(() => void (reached += 1))
        canaryPort = await listen(server, address, canaryPort)
      }
      return () => reached
    },
    async close() {
      const closed = servers.map((server) => once(server, 'close'))
      for (const server of servers) server.close()
      for (const socket of sockets) socket.destroy()
      await Promise.all(closed)
    },
  }
}
