import type { ServiceError } from '../errors.ts'
import { Shares } from '../fairness/shares.ts'
import type { ModelRequest } from './model-request.ts'
import { type AnswerSink, asServiceError, UpstreamCall, type UpstreamEnd } from './upstream-call.ts'
import { createConnections, type Repeats, type UpstreamOptions } from './upstream-connections.ts'
import { ModelOverloadedError } from './upstream-errors.ts'
import { piecesOf } from './upstream-fault.ts'

/** One server of one provider. */
export type Upstream = {
  /** Our name for the provider. */
  readonly id: string
  /**
   * Requests an answer for the sink. A broken answer ends with a `failed` event.
   * @throws a `ServiceError` when the request is not sent.
   */
  ask(
    request: ModelRequest,
    /** The provider's name for the model. */
    model: string,
    sink: AnswerSink,
    options: AskOptions,
  ): UpstreamCall
  readonly requestsUnderWay: number
  /** True at the maximum number of concurrent requests. */
  readonly isFull: boolean
  /**
   * The error of a request that would exceed the maximum number of concurrent requests, or the account's share of it. Further rounds
   * are never refused: at the maximum, they wait for a connection.
   */
  refusal(asker: Asker): ServiceError | undefined
  /** Sends a cheap request. Rejects when no server responds, when it is broken, or when it refuses the key. */
  probe(): Promise<void>
  /** Accepts no more requests. Resolves when those in flight have ended. */
  retire(): Promise<void>
  /** Aborts everything in flight. */
  close(): Promise<void>
}

/** On whose behalf the model is asked. */
export type Asker = {
  readonly account: string
  /** A later round of a request that is being answered: the limits do not cut it off. Its earlier rounds would be lost and charged. */
  readonly isFurtherRound: boolean
}

export type AskOptions = {
  readonly asker: Asker
  /** Additional headers, for tracing. */
  readonly headers?: Readonly<Record<string, string>> | undefined
  /** Which unanswered requests are retried once. Default: `unanswered`. */
  readonly repeats?: Repeats | undefined
  /** Shortens the timeout of the whole answer. */
  readonly totalMsMax?: number | undefined
  /** Words that no message may contain, besides those of the provider. */
  readonly hidden?: readonly string[] | undefined
  /** Called when the request is written to a connection. */
  readonly onSent?: (() => void) | undefined
  /** Called once, when it is over. */
  readonly onEnd?: ((end: UpstreamEnd) => void) | undefined
}

export function createUpstream(options: UpstreamOptions): Upstream {
  const { id, protocol } = options
  const connections = createConnections(options)
  const url = new URL(options.baseUrl)
  const hiddenAlways = [url.host, url.hostname, ...piecesOf(options.apiKey ?? '')]
  const places = new Shares({
    what: 'concurrent requests to this model',
    capacity: options.connectionsMax,
    floor: options.connectionsPerAccountMin,
  })
  const isFull = () => places.used >= options.connectionsMax
  const refusal = ({ account, isFurtherRound }: Asker) => {
    if (isFurtherRound) return undefined
    return isFull() ? new ModelOverloadedError() : places.refusal(account)
  }
  const write = (request: ModelRequest, model: string) => {
    try {
      return protocol.write(request, model, id)
    } catch (error) {
      throw asServiceError(error)
    }
  }

  return {
    id,
    get requestsUnderWay() {
      return places.used
    },
    get isFull() {
      return isFull()
    },
    refusal,
    ask(request, model, sink, asked) {
      const { asker, hidden: more = [] } = asked
      const refused = refusal(asker)
      if (refused !== undefined) throw refused
      const hidden = [...hiddenAlways, ...more]
      const reader = protocol.createReader(hidden, request.maxOutputTokens)
      const body = write(request, model)
      places.add(asker.account, 1)
      const onClosed = () => places.release(asker.account)
      return new UpstreamCall(sink, { options, connections, reader, body, hidden, asked, onClosed })
    },
    probe: connections.probe,
    retire: connections.retire,
    close: connections.close,
  }
}
