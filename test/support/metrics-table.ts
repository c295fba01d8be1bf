import type { ParsedMetric } from './prometheus.ts'

/** The table of `docs/observability.md`, of what a service shows. */
export function metricsTable(metrics: ReadonlyMap<string, ParsedMetric>): string {
  const rows = [...metrics.values()]
    .map(({ name, type, help }) => `| \`${name}\` | ${type} | ${help} |\n`)
    .toSorted()
    .join('')
  return `| metric | type | what |\n|---|---|---|\n${rows}`
}
