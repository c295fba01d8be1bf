import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import type { Form, Selection } from './support/suite.ts'

// Measures the tests: how many of these defects does `npm test` find, and how many `npm run test:full`? Each defect is made alone, in a copy
// of the committed tree. The tests near it run first, because most defects fall there; then the rest.
//
//   node bin/run.mjs test/mutations.ts                 all of them; about an hour
//   node bin/run.mjs test/mutations.ts --near 3 7      only the near tests, of the third and the seventh

const root = fileURLToPath(new URL('..', import.meta.url))

type Defect = readonly [file: string, before: string, after: string]

// biome-ignore format: one line each
const defects: readonly Defect[] = [
  // Money: quote, charge, bill
  ['src/money/price.ts', 'divideUp(millionths, million)', 'millionths / million'],
  ['src/billing/quote.ts', 'itemOverheadTokens * itemCount +', 'itemOverheadTokens +'],
  ['src/billing/quote.ts', 'furtherRoundsMax * inputTokensMax + searchReadingTokensMax', 'inputTokensMax + searchReadingTokensMax'],
  ['src/billing/charge.ts', 'if (usage.promptTokens <= round.inputTokensMax) return', 'if (usage.promptTokens > 0) return'],
  ['src/billing/charge.ts', 'return !stream || !bill.outputStarted', 'return !bill.outputStarted'],
  ['src/billing/charge.ts', 'return bill.finished === undefined && bill.sent === undefined', 'return bill.finished === undefined'],
  ['src/billing/charge.ts', 'Math.min(usage.completionTokens, round.maxTokens)', 'usage.completionTokens'],
  ['src/billing/charge.ts', 'searchCost: usage === undefined ? zero : bill.searchCost', 'searchCost: bill.searchCost'],
  ['src/billing/charge.ts', 'fromAtomic(cost(lines) + searchCost)', 'fromAtomic(cost(lines))'],
  ['src/billing/bill.ts', 'completionTokens: before.completionTokens + last.completionTokens', 'completionTokens: last.completionTokens'],
  // Money: SQL
  ['migrations/functions/decide_hold.sql', 'p_account.gateway + p_account.credit - p_account.extended then', 'p_account.gateway + p_account.credit then'],
  ['migrations/functions/place_holds.sql', 'v_account.held := v_account.held + v_call.quote;', 'v_account.held := v_account.held + v_made.authorized;'],
  ['migrations/functions/place_holds.sql', "elsif v_call.options_version <> v_key.options_version then", "elsif v_call.options_version < 0 then"],
  ['migrations/functions/count_ends.sql', 'when e.voided then e.authorized else 0 end', 'when e.voided then e.quote else 0 end'],
  ['migrations/functions/extend_holds.sql', 'v_more := v_call.total - v_hold.extended;', 'v_more := v_call.total;'],
  ['migrations/functions/credit_deposit.sql', "if not found then\n    return false;\n  end if;", ''],
  ['migrations/functions/request_withdrawal.sql', 'credit = a.credit - greatest(0, p_amount - a.gateway)', 'credit = a.credit'],
  ['migrations/functions/refund_attempt.sql', 'v_back := least(v_retry.charged, ', 'v_back := least('],
  ['migrations/functions/claim_replay.sql', ' and not v_attempt.stream', ''],
  ['migrations/functions/make_payments.sql', "('submitted', 'received', 'batched', 'unknown')", "('submitted', 'received')"],
  ['migrations/functions/advance_payments.sql', "and p.state not in ('completed', 'failed');", ';'],
  ['migrations/functions/find_stored.sql', 'return array(select s.id from read_stored(p_partition, p_ids) s order by s.id);', "return '{}';"],
  // Limits
  ['migrations/functions/decide_hold.sql', 'p_key.spent + p_key.held + p_amount > p_key.limit_amount', 'p_key.spent + p_amount > p_key.limit_amount'],
  ['migrations/functions/decide_hold.sql', 'p_account.held + p_account.extended + p_amount > p_rules.cap', 'p_account.held + p_amount > p_rules.cap'],
  ['migrations/functions/read_keys.sql', 'case when k.window_start >= k.window_now then k.spent else 0 end', 'k.spent'],
  ['src/chat/key-rules.ts', 'quoted.quote.amount + quoted.searchMax <= maxRequestCost', 'quoted.quote.amount <= maxRequestCost'],
  ['src/chat/key-rules.ts', 'allowedModels.length === 0 || allowedModels.includes(model)', 'allowedModels.length < 2 || allowedModels.includes(model)'],
  ['src/chat/answers.ts', '>= unclaimedPerAccountMax) return false', '>= unclaimedTotalMax) return false'],
  // Authentication and authorization
  ['src/identity/key-finder.ts', "if (secret.rotated === true) return 'rotated'", ''],
  ['src/identity/key-finder.ts', "if (row.disabled) return 'disabled'", ''],
  ['src/identity/roles.ts', 'roles.indexOf(role) >= roles.indexOf(needed)', 'roles.indexOf(role) + 1 >= roles.indexOf(needed)'],
  ['src/identity/sessions.ts', "s.expires_at > now() and s.last_used_at", 's.last_used_at'],
  ['src/api/gate.ts', '!grants(bearer.scopes, scope)', 'bearer.scopes.length === 0'],
  ['src/signer/signing-policy.ts', "requireEqual('wrong_nonce', 'nonce', message.nonce, nonce)", ''],
  ['src/x402/read-payment.ts', 'if (isOwnNonce(message.nonce)) {', 'if (false as boolean && isOwnNonce(message.nonce)) {'],
  // Retries and streams
  ['migrations/functions/claim_replay.sql', "elsif v_replay.body_hash <> p_body_hash then", 'elsif v_replay.body_hash is null then'],
  // biome-ignore lint/suspicious/noTemplateCurlyInString: it is the text of the source
  ['src/chat/retries.ts', 'sha256(`${payer.keyId} ${idempotencyKey}`)', 'sha256(`${idempotencyKey}`)'],
  ['src/v1/stream-reader.ts', 'return this.#outgoing.write(this.#chunk(text)) ? undefined : this.#drained()', 'return void this.#outgoing.write(this.#chunk(text))'],
  ['src/v1/chat-chunks.ts', 'if (!lineEnd.test(json)) return json', 'return json'],
  ['src/v1/chat-chunks.ts', 'total_tokens: usage.promptTokens + usage.completionTokens', 'total_tokens: usage.completionTokens'],
]

let running: ChildProcess | undefined
let isStopped = false
for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.on(signal, () => {
    isStopped = true
    running?.kill('SIGTERM')
  })
}

/** Without a pattern, all tests of the files. */
type Tests = Pick<Selection, 'files'> & Partial<Selection>
type Result = { readonly foundBy: Form | undefined; readonly said: string }

await using temporary = new AsyncDisposableStack()
const folder = mkdtempSync(join(tmpdir(), 'penny-mutations-'))
temporary.defer(() => rmSync(folder, { recursive: true, force: true }))
const copy = join(folder, 'penny')
// Tests of the wire format read OpenAI's schemas from there.
if (existsSync(join(root, '../shared'))) symlinkSync(join(root, '../shared'), join(folder, 'shared'))
git('worktree', 'add', '--detach', '--force', copy, 'HEAD')
temporary.defer(() => git('worktree', 'remove', '--force', copy))
for (const name of ['node_modules', '.runtime']) symlinkSync(join(root, name), join(copy, name))
cpSync(join(root, 'web/dist'), join(copy, 'web/dist'), { recursive: true })

// Those of the copy: the tree may change meanwhile.
const { testsNear }: typeof import('./support/near.ts') = await import(join(copy, 'test/support/near.ts'))
const { promisedTests, testsOf }: typeof import('./support/suite.ts') = await import(
  join(copy, 'test/support/suite.ts')
)

const [first, ...rest] = process.argv.slice(2)
const isNearOnly = first === '--near'
const numbers = (isNearOnly ? rest : [first, ...rest]).filter((text) => text !== undefined).map(Number)
const results: Result[] = []
for (const [index, defect] of defects.entries()) {
  if (numbers.length > 0 && !numbers.includes(index + 1)) continue
  const result = await tryDefect(defect)
  if (isStopped) break
  results.push(result)
  const [file, before, after] = defect
  console.log(`${index + 1}. ${file}: ${oneLine(before)} → ${oneLine(after) || '(nothing)'}`)
  console.log(`   ${result.foundBy === undefined ? 'NOT FOUND' : `found by ${result.foundBy}: ${result.said}`}`)
}
const count = (...forms: readonly Form[]) => results.filter(({ foundBy }) => foundBy && forms.includes(foundBy)).length
console.log(
  `\nOf ${results.length} defects npm test finds ${count('short')}, with npm run test:full ${count('short', 'full')}.`,
)

async function tryDefect([file, before, after]: Defect): Promise<Result> {
  const place = join(copy, file)
  const original = readFileSync(place, 'utf8')
  if (original.split(before).length !== 2) throw new Error(`${file} has this text not exactly once: ${before}`)
  writeFileSync(
    place,
    original.replace(before, () => after),
  )
  try {
    const near = new Set(testsNear([file]))
    for (const form of ['short', 'full'] as const) {
      const selections: readonly Tests[] = [{ files: testsOf(form) }, ...(form === 'short' ? [promisedTests()] : [])]
      for (const isNear of isNearOnly ? [true] : [true, false]) {
        for (const { files, ...rest } of selections) {
          const said = await failureOf({ files: files.filter((name) => near.has(name) === isNear), ...rest }, form)
          if (said !== undefined) return { foundBy: form, said }
        }
      }
    }
    return { foundBy: undefined, said: '' }
  } finally {
    writeFileSync(place, original)
  }
}

/** The name of the first test that fails. */
async function failureOf({ files, pattern }: Tests, form: Form): Promise<string | undefined> {
  if (isStopped || files.length === 0) return undefined
  const run = spawn(process.execPath, ['test/run.ts', ...files], {
    cwd: copy,
    env: { ...process.env, TEST_FORM: form, ...(pattern !== undefined && { TEST_NAME: pattern }) },
    stdio: ['ignore', 'pipe', 'ignore'],
  })
  running = run
  const [said, [code]] = await Promise.all([text(run.stdout), once(run, 'close')])
  if (code === 0) return undefined
  const failures = said.slice(said.lastIndexOf('— What failed'))
  return /^✖ .*$/m.exec(failures)?.[0] ?? `exit code ${code}`
}

function oneLine(part: string): string {
  return part.replaceAll(/\s+/g, ' ')
}

function git(...command: readonly string[]): void {
  const { status, stderr } = spawnSync('git', command, { cwd: root, encoding: 'utf8' })
  if (status !== 0) throw new Error(stderr)
}
