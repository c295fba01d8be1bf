/**
 * Numbers in the text format that Prometheus reads. A sample that was used once is a plain object whose member is added to:
 * counting on the way of a request costs a look-up and an addition. Every label takes its values from a closed list (models,
 * codes, states), never from accounts, keys or words of a customer, and a metric has `seriesMax` samples at most.
 */
export type Metric = {
  readonly name: string
  readonly help: string
  readonly type: 'counter' | 'gauge' | 'histogram'
  readonly labels: readonly string[]
  /** The lines of its samples. */
  render(): string
}

export type MetricHead<Label extends string = string> = {
  readonly name: string
  readonly help: string
  readonly labels?: readonly Label[]
}

const seriesMax = 2_000
const overflowValue = 'other'

/** Samples by the values of their labels. */
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
    if (values.length !== this.labels.length) throw new Error(`${this.name} has other labels`)
    // A list of labels that was thought to be closed and is not must not fill the memory.
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

/** Only ever grows. Amounts are counted in atomic units, which a double holds exactly up to nine thousand million USDC. */
export class Counter extends Family<{ value: number }> {
  readonly type = 'counter'

  constructor(head: MetricHead) {
    super(head, () => ({ value: 0 }))
    if (this.labels.length === 0) this.of([])
  }

  add(amount: number, ...labels: readonly string[]): void {
    this.of(labels).value += amount
  }

  render(): string {
    return this.lines(({ value }, labels) => sampleLine(this.name, labels, value))
  }
}

/** Goes up and down: it is set, or read when somebody asks. */
export class Gauge extends Family<{ value: number }> {
  readonly type: 'gauge' | 'counter'
  readonly #read: ((gauge: Gauge) => void) | undefined

  /** `read` sets it when it is asked for. `type` is `counter` for a total that is kept elsewhere and only read here. */
  constructor(head: MetricHead & { readonly read?: (gauge: Gauge) => void; readonly type?: 'gauge' | 'counter' }) {
    super(head, () => ({ value: 0 }))
    this.#read = head.read
    this.type = head.type ?? 'gauge'
  }

  set(value: number, ...labels: readonly string[]): void {
    this.of(labels).value = value
  }

  /** Forgets what was set: what is not set again is not there any more. */
  override clear(): void {
    super.clear()
  }

  render(): string {
    this.#read?.(this)
    return this.lines(({ value }, labels) => sampleLine(this.name, labels, value))
  }
}

/** How often something was how large. `buckets` are upper bounds, rising. */
export class Histogram extends Family<{ readonly counts: Float64Array; sum: number }> {
  readonly type = 'histogram'
  readonly #buckets: readonly number[]

  constructor(head: MetricHead & { readonly buckets: readonly number[] }) {
    // One more than there are bounds: what is above all of them.
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

/** The whole page. A metric without a sample yet still says what it is. */
export function renderMetrics(metrics: readonly Metric[]): string {
  return metrics
    .map(
      (metric) =>
        `# HELP ${metric.name} ${escapeHelp(metric.help)}\n# TYPE ${metric.name} ${metric.type}\n${metric.render()}`,
    )
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
