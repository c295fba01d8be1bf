import { setTimeout as delay } from 'node:timers/promises'
import type { NodeHealth } from './nodes.ts'

type Message = {
  readonly id?: unknown
  readonly result?: unknown
  readonly method?: unknown
  readonly params?: { readonly subscription?: unknown; readonly result?: { readonly number?: unknown } }
}

/** Logs that a node is to announce. `onLog` gets them as they came, unchecked. */
export type LogWatch = { readonly filter: object; readonly onLog: (log: unknown) => void }

/** A head that was announced longer ago is not believed: the connection may be dead. Arc's blocks come faster than this. */
const freshMsMax = 3_000
const reconnectMsMin = 1_000
const reconnectMsMax = 60_000
const chainIdCall = 1
const headsCall = 2
const firstLogsCall = 3

/**
 * What a node announces over WebSocket: the head of the chain (`newHeads`) and new logs (`logs`). No call is spent to ask for them, and no
 * limit of calls delays them. Only hints, of a node of the same chain: while it is silent, `height` is undefined, and callers ask. Logs
 * can be missed, when the connection ends for example, so they are read too.
 */
export class Announcements {
  readonly #url: string
  readonly #chainId: number
  #height: bigint | undefined
  #heardAtMs = Number.NEGATIVE_INFINITY
  #failure: NodeHealth['failure'] = 'unusable'
  #socket: WebSocket | undefined
  #isClosed = false
  /** Each group of logs has a number, from 0. */
  readonly #watches: LogWatch[] = []
  /** Of this connection: the node's names of subscriptions, by group. */
  #subscriptions: unknown[] = []

  constructor(url: string, chainId: number) {
    this.#url = url
    this.#chainId = chainId
    void this.#follow()
  }

  get height(): bigint | undefined {
    return performance.now() - this.#heardAtMs < freshMsMax ? this.#height : undefined
  }

  health(): NodeHealth {
    return { host: new URL(this.#url).host, failure: this.#failure }
  }

  /** Replaces the group's filter if it has one. */
  watchLogs(group: number, watch: LogWatch): void {
    this.#watches[group] = watch
    if (this.#failure === undefined) this.#subscribe(group)
  }

  close(): void {
    this.#isClosed = true
    this.#socket?.close()
  }

  async #follow(): Promise<void> {
    for (let pauseMs = reconnectMsMin; !this.#isClosed; pauseMs = Math.min(2 * pauseMs, reconnectMsMax)) {
      if (await this.#listen()) pauseMs = reconnectMsMin
      // With jitter: many services may lose one node together.
      await delay(pauseMs * (0.75 + Math.random() / 2), undefined, { ref: false })
    }
  }

  /** Resolves when the connection has ended: whether it announced a head. */
  async #listen(): Promise<boolean> {
    const socket = new WebSocket(this.#url)
    this.#socket = socket
    const ended = new Promise((resolve) => {
      socket.addEventListener('close', resolve)
      socket.addEventListener('error', resolve)
    })
    const before = this.#heardAtMs
    socket.addEventListener('open', () => this.#send(chainIdCall, 'eth_chainId', []))
    socket.addEventListener('message', ({ data }) => this.#read(parse(data)))
    await ended
    socket.close()
    if (this.#failure !== 'other chain') this.#failure = 'unusable'
    return this.#heardAtMs > before
  }

  #read({ id, result, method, params }: Message): void {
    if (id === chainIdCall) {
      // Heads of another chain would be read as blocks of this one.
      if (quantity(result) !== BigInt(this.#chainId)) {
        this.#failure = 'other chain'
        this.#socket?.close()
        return
      }
      this.#failure = undefined
      this.#subscriptions = []
      this.#send(headsCall, 'eth_subscribe', ['newHeads'])
      for (const group of this.#watches.keys()) this.#subscribe(group)
      return
    }
    // A string: the other answers are those to calls that end a subscription.
    if (typeof id === 'number' && id >= firstLogsCall && typeof result === 'string') {
      const replaced = this.#subscriptions[id - firstLogsCall]
      this.#subscriptions[id - firstLogsCall] = result
      if (replaced !== undefined) this.#send(id, 'eth_unsubscribe', [replaced])
      return
    }
    const group = params?.subscription === undefined ? -1 : this.#subscriptions.indexOf(params.subscription)
    const height = method === 'eth_subscription' ? quantity(params?.result?.number) : undefined
    if (group >= 0) this.#watches[group]!.onLog(params!.result)
    else if (height !== undefined) {
      this.#heardAtMs = performance.now()
      this.#height = height
    }
  }

  #subscribe(group: number): void {
    this.#send(firstLogsCall + group, 'eth_subscribe', ['logs', this.#watches[group]!.filter])
  }

  #send(id: number, method: string, params: readonly unknown[]): void {
    this.#socket?.send(JSON.stringify({ jsonrpc: '2.0', id, method, params }))
  }
}

function parse(data: unknown): Message {
  try {
    const value: unknown = JSON.parse(String(data))
    return typeof value === 'object' && value !== null ? value : {}
  } catch {
    return {}
  }
}

function quantity(value: unknown): bigint | undefined {
  return typeof value === 'string' && /^0x[0-9a-fA-F]{1,16}$/.test(value) ? BigInt(value) : undefined
}
