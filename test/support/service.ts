import { randomUUID } from 'node:crypto'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Grace } from '../../src/chat/answers.ts'
import { readConfig } from '../../src/config/config.ts'
import type { Database } from '../../src/db/database.ts'
import { createKey, type NewApiKey } from '../../src/identity/api-keys.ts'
import { type Account, createAccount } from '../../src/ledger/accounts.ts'
import { creditDeposit } from '../../src/ledger/deposits.ts'
import { parse } from '../../src/money/usdc.ts'
import type { WebTools } from '../../src/tools/web-tools.ts'
import { startTestedService } from './documented-answers.ts'
import { partitions } from './ledger.ts'
import { testDatabase } from './postgres.ts'

/**
 * The whole service in this process, on a database of its own, with an upstream of the test's choice. Every answer is compared with
 * openapi.json; `stop` throws when one differs.
 */
export type TestService = {
  /** Ends in /v1. */
  readonly baseUrl: string
  readonly origin: string
  readonly database: Database
  readonly databaseUrl: string
  /** An account with this much money, and a key to spend it. */
  openAccount(balance: string, key?: Partial<NewApiKey>): Promise<TestAccount>
  /** Puts money into an account that exists. */
  credit(accountId: string, amount: string): Promise<void>
  stop(): Promise<void>
}

export type TestAccount = Account & { readonly apiKey: string; readonly keyId: string }

export type TestServiceOptions = {
  /** Address of an upstream; left out, the sandbox model answers as fast as it can. */
  readonly upstreamUrl?: string
  readonly environment?: Readonly<Record<string, string>>
  /** Another node on the database of one that runs already. */
  readonly besideOf?: Pick<TestService, 'databaseUrl'>
  /** What can be searched and read; left out, what is configured. */
  readonly web?: WebTools
  /** How long attempts run on without a client; left out, the default. */
  readonly retryGrace?: Grace
  /** The clock of the rate limits, in milliseconds; left out, the real one. */
  readonly ratesNow?: () => number
}

export async function startTestService(options: TestServiceOptions = {}): Promise<TestService> {
  const ledger =
    options.besideOf === undefined ? await testDatabase() : { url: options.besideOf.databaseUrl, drop: async () => {} }
  const dataDir = mkdtempSync(join(tmpdir(), 'penny-service-'))
  const model = options.upstreamUrl === undefined ? await startModel() : undefined
  const config = readConfig({
    PORT: '0',
    DATA_DIR: dataDir,
    DATABASE_URL: ledger.url,
    UPSTREAM_BASE_URL: options.upstreamUrl ?? model!.url,
    // The sandbox model speaks both protocols: client suites run over each of them.
    UPSTREAM_PROTOCOL: process.env.TEST_UPSTREAM_PROTOCOL,
    LOG_LEVEL: 'silent',
    // Nothing settles here: the money of these tests is credited by hand, and all of it may be unsettled.
    ROLES: 'web',
    // On every machine, however many cores it has.
    WEB_PROCESSES: '1',
    SEARCH_PROVIDER: 'none',
    UNSETTLED_CAP_USDC: '1000000',
    DRAIN_MS: '2000',
    LEDGER_PARTITIONS: String(partitions),
    ...options.environment,
  })
  const service = await startTestedService(config, {
    web: options.web,
    retryGrace: options.retryGrace,
    ratesNow: options.ratesNow,
  })
  return {
    baseUrl: `${service.publicUrl}/v1`,
    origin: service.publicUrl,
    database: service.database,
    databaseUrl: ledger.url,
    async openAccount(balance, key = {}) {
      const account = await createAccount(service.database, 'test', config.ledgerPartitions)
      const amount = parse(balance)
      if (amount > 0n)
        await creditDeposit(service.database, { ...account, accountId: account.id, amount, source: 'test' })
      const created = await createKey(service.database, {
        partition: account.partition,
        accountId: account.id,
        name: 'test',
        ...key,
      })
      return { ...account, apiKey: created.secret, keyId: created.id }
    },
    async credit(accountId, amount) {
      const [account] = await service.database.query<{ partition: number }>(
        'select partition from accounts where id = $1',
        [accountId],
      )
      await creditDeposit(service.database, {
        partition: account!.partition,
        id: randomUUID(),
        accountId,
        amount: parse(amount),
        source: 'test',
      })
    },
    async stop() {
      try {
        await service.stop()
      } finally {
        await model?.close()
        await ledger.drop()
        rmSync(dataDir, { recursive: true, force: true })
      }
    },
  }
}

/** Loaded on demand: it needs the tokenizer's vocabulary, a quarter of a second of a core. */
async function startModel() {
  const { startModelServer } = await import('../../sandbox/model/server.ts')
  return startModelServer({ host: '127.0.0.1', port: 0, tokensPerSecond: 0 })
}

/** One completion by plain HTTP, as a client that is not an SDK would send it. */
export async function postChat(
  service: TestService,
  apiKey: string,
  body: unknown,
  init: RequestInit = {},
): Promise<Response> {
  return fetch(`${service.baseUrl}/chat/completions`, {
    method: 'POST',
    body: typeof body === 'string' ? body : JSON.stringify(body),
    ...init,
    headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json', ...init.headers },
  })
}

/** The ledger row of an answer, by the id in its headers. */
export async function getRow(service: TestService, apiKey: string, answer: Response | string): Promise<RequestBody> {
  const id = typeof answer === 'string' ? answer : answer.headers.get('x-router-request-id')
  const response = await fetch(`${service.origin}/api/requests/${id}`, {
    headers: { authorization: `Bearer ${apiKey}` },
  })
  return (await response.json()) as RequestBody
}

/** Tokens have a price for a million of them, calls one for each. */
export type CostLine = {
  readonly item: string
  readonly units: number
  readonly per_million?: string
  readonly per_call?: string
  readonly status?: string
  readonly reason?: string
  readonly results?: number
}

/** The body of a request whose model gets only the question, so that its number of input tokens is known. */
export const withoutTools = { web_search: false, web_fetch: false }

/** The sum of a row's lines, rounded up once; written here again, since it is what we promise. */
export function costOfLines({ cost }: RequestBody): bigint {
  const millionths = cost.lines.reduce((sum, { units, per_million, per_call }) => {
    const perMillion = per_million === undefined ? parse(per_call!) * 1_000_000n : parse(per_million)
    return sum + BigInt(units) * perMillion
  }, 0n)
  return (millionths + 999_999n) / 1_000_000n
}

/** The members of a ledger row that tests look at. */
export type RequestBody = {
  readonly id: string
  readonly status: string
  readonly quote_atomic: string
  readonly held_atomic: string
  readonly extended_atomic: string
  readonly charged_atomic: string
  readonly given_back_atomic: string
  readonly refunded_atomic: string
  readonly excess_atomic: string
  readonly from_credit_atomic: string
  readonly authorized_atomic: string
  readonly usage: {
    prompt_tokens: number
    completion_tokens: number
    reasoning_tokens: number
    total_tokens: number
    source: string
  } | null
  readonly cost: {
    inference_atomic: string
    search_atomic: string
    search_calls: number
    fetch_calls: number
    lines: CostLine[]
  }
  readonly error: { code: string } | null
  readonly finish_reason: string | null
  readonly settlement: { state: string; nonce: string | null }
}
