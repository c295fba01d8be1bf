import { setTimeout as delay } from 'node:timers/promises'
import type { NodeHealth } from './nodes.ts'

type Message = {
  readonly id?: unknown
  readonly result?: unknown
  readonly method?: unknown
  readonly params?: { readonly result?: { readonly number?: unknown } }
}

/** A head that was announced longer ago is not believed: the connection may be dead. Arc's blocks come faster than this. */
const freshMsMax = 3_000
const reconnectMsMin = 1_000
const reconnectMsMax = 60_000
const chainIdCall = 1

/**
 * The head of the chain as a node announces it over WebSocket (`newHeads`): no call is spent to ask for it. Only a hint, of a node of
 * the same chain; while it is silent, `height` is undefined and the caller asks.
 */
export class AnnouncedHeads {
  readonly #url: string
  readonly #chainId: number
  #height: bigint | undefined
  #heardAtMs = Number.NEGATIVE_INFINITY
  #failure: NodeHealth['failure'] = 'unusable'
  #socket: WebSocket | undefined
  #isClosed = false

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
    socket.addEventListener('open', () => socket.send(call(chainIdCall, 'eth_chainId', [])))
    socket.addEventListener('message', ({ data }) => this.#read(socket, parse(data)))
    await ended
    socket.close()
    if (this.#failure !== 'other chain') this.#failure = 'unusable'
    return this.#heardAtMs > before
  }

  #read(socket: WebSocket, { id, result, method, params }: Message): void {
    if (id === chainIdCall) {
      // Heads of another chain would be read as blocks of this one.
      if (quantity(result) !== BigInt(this.#chainId)) {
        this.#failure = 'other chain'
        socket.close()
        return
      }
      this.#failure = undefined
      socket.send(call(chainIdCall + 1, 'eth_subscribe', ['newHeads']))
      return
    }
    const height = method === 'eth_subscription' ? quantity(params?.result?.number) : undefined
    if (height === undefined) return
    this.#heardAtMs = performance.now()
    this.#height = height
  }
}

function call(id: number, method: string, params: readonly unknown[]): string {
  return JSON.stringify({ jsonrpc: '2.0', id, method, params })
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
