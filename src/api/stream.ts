import { addAbortListener } from 'node:events'
import type { AccountRef } from '../db/account-ref.ts'
import { responseClosed } from '../http/disconnect.ts'
import { isSessionAlive } from '../identity/sessions.ts'
import type { AnswerOf } from '../openapi/contract.ts'
import { chatContracts } from '../openapi/contracts/chat.ts'
import { AccountFeeds, type FeedEvent, type Listener } from './account-feeds.ts'
import { renderBalance, renderDeposit, renderWithdrawal } from './render-funds.ts'
import { renderRequest } from './render-request.ts'
import type { ApiRouter } from './router.ts'
import type { ApiServices } from './services.ts'

type StreamEvent = AnswerOf<typeof chatContracts.openStream>

const unreadMax = 256 * 1024

/** `GET /api/stream`: live changes of the account, until the session ends or the client disconnects. */
export function routeStream(router: ApiRouter, services: ApiServices): void {
  const { database, onError, answering, unidentified } = services
  const feeds = new AccountFeeds({ database, onError: (error) => onError(error, 'stream') })

  router.at(chatContracts.openStream).answer(async ({ session, visitor, headers, outgoing }) => {
    const encoder = new TextEncoder()
    const over = new AbortController()
    let controller!: ReadableStreamDefaultController<Uint8Array>
    const body = new ReadableStream<Uint8Array>(
      {
        start: (given) => {
          controller = given
        },
        cancel: () => over.abort(),
      },
      new ByteLengthQueuingStrategy({ highWaterMark: unreadMax }),
    )
    const end = () => {
      if (over.signal.aborted) return
      over.abort()
      controller.close()
    }
    const send = (text: string) => {
      if (over.signal.aborted) return
      controller.enqueue(encoder.encode(text))
      // Disconnect a client that does not read. Browsers reconnect by themselves.
      if ((controller.desiredSize ?? 0) >= 0) return
      end()
      // What is in memory waits for the client, and would wait as long as it stays connected.
      outgoing.destroy()
    }
    const listener: Listener = (events, number) => {
      // Only the last event has the id: a client that is interrupted before it gets all of them again.
      const texts = events.map((event) => render(renderEvent(event)))
      send(`${texts.slice(0, -1).join('')}id: ${formatStreamId(session, number)}\n${texts.at(-1)}`)
    }
    // Before the response begins, so that a refusal has its status.
    const subscription = await feeds.watch(session, listener, parseStreamId(session, headers['last-event-id']))
    const timer = setInterval(() => {
      isSessionAlive(database, session)
        .then((alive) => (alive ? send(': \n\n') : end()))
        .catch((error: unknown) => onError(error, 'stream'))
    }, answering.streamKeepaliveMs).unref()
    const ignore = unidentified.watch(visitor, ({ at, code, message }) =>
      send(render({ type: 'unidentified', at: at.toISOString(), code, message })),
    )
    addAbortListener(over.signal, () => {
      subscription.stop()
      clearInterval(timer)
      ignore()
    })
    // The body is neither read nor cancelled after a HEAD request, or if the client disconnected before the response began.
    void responseClosed(outgoing).then(end)
    send(`id: ${formatStreamId(session, subscription.number)}\n${render(ready(subscription.isResumed))}`)
    return new Response(body as ConstructorParameters<typeof Response>[0], {
      headers: {
        'content-type': 'text/event-stream; charset=utf-8',
        'cache-control': 'no-store',
        'x-accel-buffering': 'no',
      },
    })
  })

  function renderEvent(event: FeedEvent): StreamEvent {
    switch (event.type) {
      case 'balance':
        return { type: 'balance', balance: renderBalance(event.balance, services) }
      case 'request':
        return { type: 'request', change: event.change, request: renderRequest(event.request) }
      case 'deposit':
        return { type: 'deposit', deposit: renderDeposit(event.deposit) }
      case 'withdrawal':
        return { type: 'withdrawal', withdrawal: renderWithdrawal(event.withdrawal) }
      case 'missed':
        return ready(false)
    }
  }
}

function ready(resumed: boolean): StreamEvent {
  return { type: 'ready', at: new Date().toISOString(), resumed }
}

/** Contains the account: after a switch of accounts a browser must not resume at a number of the other one. */
function formatStreamId({ accountId }: AccountRef, number: bigint): string {
  return `${accountId}.${number}`
}

/** Undefined when it is not an id of this account's stream. */
function parseStreamId({ accountId }: AccountRef, text: string | undefined): bigint | undefined {
  const [, owner, number] = /^(.{36})\.(\d{1,18})$/.exec(text ?? '') ?? []
  return owner === accountId ? BigInt(number!) : undefined
}

function render(event: StreamEvent): string {
  return `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`
}
