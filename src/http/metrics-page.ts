import type { IncomingMessage, ServerResponse } from 'node:http'
import type { LedgerNumbers } from '../ledger/ledger-numbers.ts'
import { type Metric, type MetricSamples, metricsContentType, renderMetrics, renderSamples } from '../observe/metric.ts'
import { isSameSecret } from '../process/same-secret.ts'
import { createLedgerMetrics } from './ledger-metrics.ts'
import { asDeclared } from './send.ts'

export type MetricsPageOptions = {
  /** Metrics of this process. */
  readonly metrics: readonly Metric[]
  /** Where several processes share the port: the number of this one, and how it gets the samples of all. */
  readonly shared?: SharedPort | undefined
  readonly readNumbers: () => Promise<LedgerNumbers>
  readonly onReadError: (error: unknown) => void
  /** Undefined: public. */
  readonly token: string | undefined
  /** Monotonic milliseconds. */
  readonly now: () => number
}

export type SharedPort = {
  readonly processNumber: number
  readonly samplesOfAll: () => Promise<readonly MetricSamples[]>
}

const numbersMsMax = 5_000

/** `GET /metrics`. Reads the database at most once in five seconds. */
export class MetricsPage {
  readonly #options: MetricsPageOptions
  readonly #ledger = createLedgerMetrics()
  #reading: Promise<void> | undefined
  #readMs = Number.NEGATIVE_INFINITY

  constructor(options: MetricsPageOptions) {
    this.#options = options
  }

  /** All metrics, for their documentation. */
  get metrics(): readonly Metric[] {
    return [...this.#options.metrics, ...this.#ledger.metrics]
  }

  async answer(incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
    if (incoming.method !== 'GET' && incoming.method !== 'HEAD')
      return end(outgoing, 405, 'Use GET.\n', { allow: 'GET' })
    if (!this.#mayRead(incoming.headers.authorization))
      return end(outgoing, 401, 'Send the METRICS_TOKEN as "Authorization: Bearer …".\n', {
        'www-authenticate': 'Bearer realm="metrics"',
      })
    const [samples] = await Promise.all([this.#samplesOfAll(), this.#refresh()])
    const page = renderMetrics(this.metrics, [...samples, renderSamples(this.#ledger.metrics)])
    end(outgoing, 200, page, { 'content-type': metricsContentType })
  }

  /** What this process has counted. */
  samples(): MetricSamples {
    return renderSamples(this.#options.metrics, this.#options.shared?.processNumber)
  }

  /** A process that cannot reach the others still reports its own. */
  async #samplesOfAll(): Promise<readonly MetricSamples[]> {
    const all = await this.#options.shared?.samplesOfAll().catch(this.#options.onReadError)
    return all ?? [this.samples()]
  }

  #mayRead(authorization: string | undefined): boolean {
    const { token } = this.#options
    return token === undefined || isSameSecret(authorization ?? '', `Bearer ${token}`)
  }

  #refresh(): Promise<void> {
    if (this.#options.now() - this.#readMs < numbersMsMax) return Promise.resolve()
    this.#reading ??= this.#read().finally(() => {
      this.#reading = undefined
    })
    return this.#reading
  }

  async #read(): Promise<void> {
    try {
      this.#ledger.show(await this.#options.readNumbers())
    } catch (error) {
      // Serve the metrics of this process anyway: they matter most while the database is down.
      this.#ledger.show(undefined)
      this.#options.onReadError(error)
    }
    this.#readMs = this.#options.now()
  }
}

function end(outgoing: ServerResponse, status: number, text: string, headers: Readonly<Record<string, string>>): void {
  outgoing.writeHead(status, {
    'content-type': 'text/plain; charset=utf-8',
    'cache-control': 'no-store',
    ...asDeclared,
    ...headers,
  })
  outgoing.end(text)
}
