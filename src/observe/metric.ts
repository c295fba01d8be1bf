/**
 * A metric in the Prometheus text format. A sample is a plain object, so counting during a request costs one map lookup and one
 * addition. Every label takes its values from a closed list (models, codes, states), never from accounts, keys or customer text. A
 * metric has at most `seriesMax` samples.
 */
export type Metric = {
  readonly name: string
  readonly help: string
  readonly type: 'counter' | 'gauge' | 'histogram'
  readonly labels: readonly string[]
  /** The sample lines. */
  render(): string
}

export type MetricHead<Label extends string = string> = {
  readonly name: string
  readonly help: string
  readonly labels?: readonly Label[]
  /**
   * Of a counter: label values that are exported as 0 from the start. Prometheus sees no increase in a series that begins at 1, so
   * an alert on the first event of a kind needs the series before it.
   */
  readonly fromStart?: readonly string[]
}

const seriesMax = 2_000
const overflowValue = 'other'

/** Samples by label values. */
abstract class Family<Sample> implements Metric {
  abstract readonly type: Metric['type']
  readonly name: string
  readonly help: string
  readonly labels: readonly string[]
  readonly #samples = new Map<string, { readonly values: readonly string[]; readonly sample: Sample }>()
  readonly #create: () => Sample

  constructor({ name, help, labels = [] }: MetricHead, create: () => Sample) {
    this.name = name
    this.help = help
    this.labels = labels
    this.#create = create
  }

  abstract render(): string

  protected of(values: readonly string[]): Sample {
    const key = values.length === 1 ? values[0]! : values.join('\u0000')
    const known = this.#samples.get(key)
    if (known !== undefined) return known.sample
    if (values.length !== this.labels.length) throw new Error(`${this.name} expects labels ${this.labels.join(', ')}`)
    // A label whose values turn out to be unbounded must not fill the memory.
    if (this.#samples.size >= seriesMax && values.some((value) => value !== overflowValue))
      return this.of(values.map(() => overflowValue))
    const sample = this.#create()
    this.#samples.set(key, { values, sample })
    return sample
  }

  protected clear(): void {
    this.#samples.clear()
  }

  protected lines(render: (sample: Sample, labels: string) => string): string {
    let text = ''
    for (const { values, sample } of this.#samples.values()) {
      text += render(sample, values.map((value, index) => `${this.labels[index]}="${escapeLabel(value)}"`).join(','))
    }
    return text
  }
}

/** Never decreases. Amounts are counted in atomic units, which a double holds exactly up to nine billion USDC. */
export class Counter extends Family<{ value: number }> {
  readonly type = 'counter'

  constructor(head: MetricHead) {
    super(head, () => ({ value: 0 }))
    if (this.labels.length === 0) this.of([])
    for (const value of head.fromStart ?? []) this.of([value])
  }

  add(amount: number, ...labels: readonly string[]): void {
    this.of(labels).value += amount
  }

  render(): string {
    return this.lines(({ value }, labels) => sampleLine(this.name, labels, value))
  }
}

/** Goes up and down. Its value is either set, or read when Prometheus scrapes. */
export class Gauge extends Family<{ value: number }> {
  readonly type: 'gauge' | 'counter'
  readonly #read: ((gauge: Gauge) => void) | undefined

  /** `read` sets the value on each scrape. `type` is `counter` for a total that is maintained elsewhere and only read here. */
  constructor(head: MetricHead & { readonly read?: (gauge: Gauge) => void; readonly type?: 'gauge' | 'counter' }) {
    super(head, () => ({ value: 0 }))
    this.#read = head.read
    this.type = head.type ?? 'gauge'
  }

  set(value: number, ...labels: readonly string[]): void {
    this.of(labels).value = value
  }

  /** Removes all samples: a series that is not set again disappears. */
  override clear(): void {
    super.clear()
  }

  render(): string {
    this.#read?.(this)
    return this.lines(({ value }, labels) => sampleLine(this.name, labels, value))
  }
}

/** A distribution of values. `buckets` are upper bounds in ascending order. */
export class Histogram extends Family<{ readonly counts: Float64Array; sum: number }> {
  readonly type = 'histogram'
  readonly #buckets: readonly number[]

  constructor(head: MetricHead & { readonly buckets: readonly number[] }) {
    // The extra bucket counts values above the last bound.
    super(head, () => ({ counts: new Float64Array(head.buckets.length + 1), sum: 0 }))
    this.#buckets = head.buckets
    if (this.labels.length === 0) this.of([])
  }

  observe(value: number, ...labels: readonly string[]): void {
    const sample = this.of(labels)
    let place = 0
    while (place < this.#buckets.length && value > this.#buckets[place]!) place += 1
    sample.counts[place]! += 1
    sample.sum += value
  }

  render(): string {
    return this.lines(({ counts, sum }, labels) => {
      const prefix = labels === '' ? '' : `${labels},`
      let count = 0
      let text = ''
      for (const [index, bound] of [...this.#buckets, Number.POSITIVE_INFINITY].entries()) {
        count += counts[index]!
        text += sampleLine(`${this.name}_bucket`, `${prefix}le="${formatNumber(bound)}"`, count)
      }
      return text + sampleLine(`${this.name}_sum`, labels, sum) + sampleLine(`${this.name}_count`, labels, count)
    })
  }
}

/** The sample lines of one process, by the name of the metric. */
export type MetricSamples = Readonly<Record<string, string>>

/** With a process number, every line gets the label `process`: processes that share a port are one target for Prometheus. */
export function renderSamples(metrics: readonly Metric[], processNumber?: number): MetricSamples {
  return Object.fromEntries(
    metrics.map((metric) => {
      const lines = metric.render()
      return [metric.name, processNumber === undefined ? lines : withLabel(lines, `process="${processNumber}"`)]
    }),
  )
}

function withLabel(lines: string, label: string): string {
  return lines.replace(/^(\w+)(\{?)/gm, (_, name: string, brace: string) =>
    brace === '' ? `${name}{${label}}` : `${name}{${label},`,
  )
}

/** The whole page. A metric without samples still shows its help and type. */
export function renderMetrics(metrics: readonly Metric[], samples = [renderSamples(metrics)]): string {
  return metrics
    .map(({ name, help, type }) => {
      const lines = samples.map((ofProcess) => ofProcess[name] ?? '').join('')
      return `# HELP ${name} ${escapeHelp(help)}\n# TYPE ${name} ${type}\n${lines}`
    })
    .join('')
}

export const metricsContentType = 'text/plain; version=0.0.4; charset=utf-8'

function sampleLine(name: string, labels: string, value: number): string {
  return `${name}${labels === '' ? '' : `{${labels}}`} ${formatNumber(value)}\n`
}

function formatNumber(value: number): string {
  if (value === Number.POSITIVE_INFINITY) return '+Inf'
  return value === Number.NEGATIVE_INFINITY ? '-Inf' : String(value)
}

function escapeLabel(value: string): string {
  return value.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n')
}

function escapeHelp(text: string): string {
  return text.replaceAll('\\', '\\\\').replaceAll('\n', '\\n')
}
