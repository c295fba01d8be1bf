/** One metric of a page, with its samples in their order. */
export type ParsedMetric = {
  readonly name: string
  readonly help: string
  readonly type: string
  readonly samples: readonly ParsedSample[]
}

export type ParsedSample = {
  readonly name: string
  readonly labels: Readonly<Record<string, string>>
  readonly value: number
}

const metricName = /^[a-zA-Z_:][a-zA-Z0-9_:]*$/
const labelName = /^[a-zA-Z_][a-zA-Z0-9_]*$/
const number = /^([+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?|[+-]Inf|NaN)$/
const types = new Set(['counter', 'gauge', 'histogram', 'summary', 'untyped'])

/**
 * Reads a page of metrics by the letter of the text format, as `promtool check metrics` does: each metric has one HELP and
 * one TYPE before its samples, samples of a metric stand together, none comes twice, counters end in `_total` and do not fall
 * below 0, buckets rise to `+Inf`, which is the count. Throws at the first line that breaks a rule.
 */
export function parseMetrics(text: string): ReadonlyMap<string, ParsedMetric> {
  if (!text.endsWith('\n')) throw new Error('the last line has no end')
  const metrics = new Map<string, { name: string; help: string; type: string; samples: ParsedSample[] }>()
  const seen = new Set<string>()
  let current: { name: string; help: string; type: string; samples: ParsedSample[] } | undefined
  for (const line of text.slice(0, -1).split('\n')) {
    const [, kind, name = '', rest = ''] = /^# (HELP|TYPE) (\S+) (.*)$/.exec(line) ?? []
    if (kind === 'HELP') {
      if (!metricName.test(name)) throw new Error(`no name of a metric: ${line}`)
      if (metrics.has(name)) throw new Error(`${name} comes twice`)
      current = { name, help: rest, type: '', samples: [] }
      metrics.set(name, current)
    } else if (kind === 'TYPE') {
      if (current?.name !== name || current.type !== '') throw new Error(`a TYPE that follows no HELP: ${line}`)
      if (!types.has(rest)) throw new Error(`no type: ${line}`)
      current.type = rest
    } else {
      const sample = parseSample(line)
      if (current === undefined || current.type === '' || !belongs(sample.name, current))
        throw new Error(`a sample outside of its metric: ${line}`)
      const identity = `${sample.name}${JSON.stringify(Object.entries(sample.labels).sort())}`
      if (seen.has(identity)) throw new Error(`a sample that comes twice: ${line}`)
      seen.add(identity)
      current.samples.push(sample)
    }
  }
  for (const metric of metrics.values()) check(metric)
  return metrics
}

/** The value of the one sample with these labels, of those that are named; undefined when there is none. */
export function sampleValue(
  metrics: ReadonlyMap<string, ParsedMetric>,
  name: string,
  labels: Readonly<Record<string, string>> = {},
): number | undefined {
  const family = metrics.get(name) ?? metrics.get(name.replace(/_(bucket|sum|count)$/, ''))
  const fitting = family?.samples.filter(
    (sample) =>
      sample.name === name && Object.entries(labels).every(([label, value]) => sample.labels[label] === value),
  )
  if (fitting !== undefined && fitting.length > 1) throw new Error(`${name} has ${fitting.length} such samples`)
  return fitting?.[0]?.value
}

function belongs(name: string, { name: family, type }: { readonly name: string; readonly type: string }): boolean {
  return type === 'histogram' ? /^_(bucket|sum|count)$/.test(name.replace(family, '')) : name === family
}

function parseSample(line: string): ParsedSample {
  const [, name = '', , list = '', value = ''] = /^([^{\s]+)(\{(.*)\})? (\S+)$/s.exec(line) ?? []
  if (!metricName.test(name) || !number.test(value)) throw new Error(`no sample: ${line}`)
  return { name, labels: parseLabels(list, line), value: value.endsWith('Inf') ? Infinity : Number(value) }
}

function parseLabels(list: string, line: string): Record<string, string> {
  const labels: Record<string, string> = {}
  let rest = list
  while (rest !== '') {
    const match = /^([^=]+)="((?:[^"\\]|\\["\\n])*)"(,|$)/.exec(rest)
    if (match === null) throw new Error(`labels that cannot be read: ${line}`)
    const [whole, name = '', value = ''] = match
    if (!labelName.test(name) || name.startsWith('__') || name in labels) throw new Error(`a bad label: ${line}`)
    labels[name] = value.replace(/\\(.)/g, (_, escaped: string) => (escaped === 'n' ? '\n' : escaped))
    rest = rest.slice(whole.length)
  }
  return labels
}

function check({ name, help, type, samples }: ParsedMetric): void {
  if (help === '' || type === '') throw new Error(`${name} does not say what it is`)
  if (type === 'counter' && !name.endsWith('_total')) throw new Error(`${name} is a counter and does not end in _total`)
  if (type !== 'counter' && name.endsWith('_total')) throw new Error(`${name} ends in _total and is no counter`)
  if (type === 'counter' && samples.some(({ value }) => !(value >= 0))) throw new Error(`${name} is below 0`)
  const reserved = type === 'histogram' ? 'quantile' : type === 'summary' ? 'le' : /^(quantile|le)$/
  if (samples.some(({ labels }) => Object.keys(labels).some((label) => label.match(reserved)?.[0] === label)))
    throw new Error(`${name} has a label that is reserved for summaries or histograms`)
  if (type === 'histogram') checkBuckets(name, samples)
}

function checkBuckets(name: string, samples: readonly ParsedSample[]): void {
  const series = Map.groupBy(samples, ({ labels: { le: _, ...labels } }) => JSON.stringify(labels))
  for (const group of series.values()) {
    const buckets = group.filter((sample) => sample.name === `${name}_bucket`)
    const bounds = buckets.map(({ labels }) => (labels.le === '+Inf' ? Infinity : Number(labels.le)))
    const counts = buckets.map(({ value }) => value)
    const count = group.find((sample) => sample.name === `${name}_count`)?.value
    const rises = (values: readonly number[], strictly: boolean) =>
      values.every(
        (value, index) => index === 0 || (strictly ? value > values[index - 1]! : value >= values[index - 1]!),
      )
    if (!rises(bounds, true) || !rises(counts, false)) throw new Error(`the buckets of ${name} do not rise`)
    if (bounds.at(-1) !== Infinity || counts.at(-1) !== count) throw new Error(`${name} has buckets that miss some`)
    if (!group.some((sample) => sample.name === `${name}_sum`)) throw new Error(`${name} has no sum`)
  }
}
