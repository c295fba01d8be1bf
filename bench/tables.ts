import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { round } from './parts/rounds.ts'
import type { Result } from './result.ts'

// `npm run bench:tables`: writes what `bench/results/` says into these pages, between the marks that are there for it.

const pages = ['performance', 'scaling'].map((name) => fileURLToPath(new URL(`../docs/${name}.md`, import.meta.url)))
const rowsMax = 30

type Cell = string | number
type Row = Readonly<Record<string, Cell>>

for (const page of pages) {
  const text = readFileSync(page, 'utf8').replaceAll(
    /(<!-- table: (\S+) -->\n)[\s\S]*?(<!-- end -->)/g,
    (_, opening: string, name: string, closing: string) =>
      `${opening}\n${name === 'targets' ? targets() : tables(name)}\n${closing}`,
  )
  writeFileSync(page, text)
}

/** Rows that say different things about different subjects are different tables. */
function tables(scenario: string): string {
  const result = read(scenario)
  if (result === undefined) return `*Not measured yet: \`npm run bench ${scenario}\`.*\n`
  const groups = Map.groupBy(result.rows.slice(0, rowsMax), (row) => Object.keys(row).join())
  const short = result.scale === undefined ? '' : `, a short run (scale ${result.scale})`
  const source = `*${result.date.slice(0, 10)}, ${result.machine}, Node ${result.node}${short}.*\n`
  return [...[...groups.values()].map((rows) => table(rows)), source].join('\n')
}

function table(rows: readonly Row[]): string {
  const names = Object.keys(rows[0]!)
  const lines = rows.map((row) => `| ${names.map((name) => String(row[name])).join(' | ')} |`)
  return `${[`| ${names.join(' | ')} |`, `|${names.map(() => '---').join('|')}|`, ...lines].join('\n')}\n`
}

/** The targets of the specification, each beside the number that was measured last. */
function targets(): string {
  const penny = (row: Row) => String(row.subject).startsWith('Penny')
  const one = (name: string, rows: (row: Row) => boolean, column: string): Cell =>
    read(name)?.rows.find((row) => rows(row) && row[column] !== undefined)?.[column] ?? 'not measured'
  const wholeCpu = (subject: string) => {
    const row = read('buffered')?.rows.find((candidate) => candidate.subject === subject)
    const parts = Object.entries(row ?? {}).filter(([column]) => column.endsWith('_cpu_us'))
    return parts.reduce((sum, [, us]) => sum + Number(us), 0)
  }
  const ledger = (accounts: number) =>
    one('ledger', (row) => row.accounts === accounts && row.at_once === 512, 'per_second')
  return table(
    [
      [
        'CPU of everything for a request (serve, bill, settle on chain) ÷ Portkey forwarding it',
        '< 1',
        round(wholeCpu('Penny, settling too') / wholeCpu('Portkey gateway')),
      ],
      [
        'CPU of the web process per request, billing durable ÷ bare Node pass-through',
        '≤ 2.0',
        one('buffered', penny, 'web_cpu/bare'),
      ],
      [
        'requests per second with durable billing ÷ Portkey with none',
        '≥ 3',
        one('buffered', penny, 'per_second/portkey'),
      ],
      [
        'the same, with signer, settlement, gateway and chain on the same cores',
        '',
        one('buffered', (row) => row.subject === 'Penny, settling too', 'per_second/portkey'),
      ],
      ['added time to the first token, one client, p50', '≤ 1.5 ms', one('streams', penny, 'added_first_token_p50_ms')],
      ['added time to the first token, one client, p99', '≤ 5 ms', one('streams', penny, 'added_first_token_p99_ms')],
      ['stream events per second of one core', '≥ 7,000', one('streams', penny, 'events_per_core_second')],
      ['open streams, a token a second', '≥ 5,000', one('streams', penny, 'open')],
      ['of them stalled', 'none', one('streams', penny, 'stalled')],
      ['memory for each, KiB', '≤ 60', one('streams', penny, 'kib_per_stream')],
      ['hold + end per second, one account, 512 at once', '≥ 10,000', ledger(1)],
      ['hold + end per second, 1,000 accounts, 512 at once', '≥ 10,000', ledger(1000)],
      [
        'cost per request, the largest ledger measured ÷ a young one',
        '0.8 to 1.2',
        read('growth')?.rows.at(-1)?.['cost/young'] ?? 'not measured',
      ],
    ].map(([measure, target, measured]) => ({ measure: measure!, target: target!, measured: measured! })),
  )
}

function read(scenario: string): Result | undefined {
  const file = fileURLToPath(new URL(`./results/${scenario}.json`, import.meta.url))
  return existsSync(file) ? (JSON.parse(readFileSync(file, 'utf8')) as Result) : undefined
}
