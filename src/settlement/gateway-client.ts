import { Pool } from 'undici'
import { within } from '../process/deadline.ts'
import type { Hex } from '../receipts/hex.ts'
import type { Address } from '../signer/address.ts'
import type { BurnIntent } from '../signer/typed-data.ts'
import type { PaymentPayload, PaymentRequirements } from './authorization.ts'
import { eachOf } from './each-of.ts'

export type SubmittedPayment = {
  readonly paymentPayload: PaymentPayload
  readonly paymentRequirements: PaymentRequirements
}

export type Submission =
  | { readonly state: 'received'; readonly id: string }
  | { readonly state: 'failed'; readonly reason: string }
  | { readonly state: 'unknown'; readonly reason: string }

export const gatewayTransferStates = ['received', 'batched', 'confirmed', 'completed', 'failed'] as const
export type GatewayTransferState = (typeof gatewayTransferStates)[number]

/** The ledger has no state between inclusion in a block and finality. */
export function ledgerStateOf<State extends GatewayTransferState>(
  state: State,
): Exclude<State, 'confirmed'> | 'batched' {
  return state === 'confirmed' ? 'batched' : (state as Exclude<State, 'confirmed'>)
}

export type GatewayTransfer = {
  readonly id: string
  readonly state: GatewayTransferState
  readonly from: string
  readonly to: string
  readonly amount: bigint
  /** Lower case. Circle's gateway may omit it. */
  readonly nonce: Hex | undefined
  readonly reason: string | undefined
  /** Only our gateway reports it. Circle nets its batches and reports a transaction late or never. */
  readonly batch: bigint | undefined
  readonly transactionHash: Hex | undefined
  readonly receipt: { readonly root: Hex; readonly proof: readonly Hex[] } | undefined
  /** Position among the payments of its batch, from 1. Circle does not report it. */
  readonly place: { readonly position: number; readonly size: number } | undefined
}

/** A payment without a final state. */
export type OpenTransfer = {
  readonly id: string
  /** Requested by id even if the gateway has a list of changes. */
  readonly isOverdue: boolean
}

export type News = {
  readonly transfers: readonly GatewayTransfer[]
  /** The cursor for the next call. */
  readonly next: string | undefined
  /** More changes are available: call again immediately. */
  readonly hasMore: boolean
  /** The gateway has another database and does not know the cursor: its list was read from the beginning. */
  readonly isRestarted: boolean
  /** Ids of `open` that the gateway says it does not have. */
  readonly lost: readonly string[]
  /** Ids of `open` that were requested without an answer. */
  readonly unanswered: readonly string[]
}

export type GatewayWithdrawal = {
  readonly state: 'pending' | 'confirmed' | 'failed'
  readonly transactionHash: Hex | undefined
  readonly reason: string | undefined
  /** Taken in addition to the amount; undefined when the gateway does not report it. */
  readonly fee: bigint | undefined
}

export type GatewayClientOptions = {
  readonly url: string
  /** Our own gateway requires it to show payments. */
  readonly token?: string | undefined
  /** The gateway's domain number of the chain. */
  readonly domain: number
  readonly timeoutMs?: number
  readonly connectionsMax?: number
}

type Changes = Omit<News, 'lost' | 'unanswered'>

type Answer = { readonly status: number; readonly body: Record<string, unknown> | undefined }

const bodyBytesMax = 4 * 1024 * 1024
/** Balances per call. */
const balancesMax = 100
/** Changes per call; with their proofs about 600 kB. */
const changesMax = 500
/** Transfers per page. */
const listedMax = 100
const requestsConcurrentMax = 16
/** Payments per call, each about 2 kB. */
const submittedMax = 64

/** Without its private parts, so that others can stand in for it. */
export type GatewayClient = Pick<HttpGatewayClient, keyof HttpGatewayClient>

export function createGatewayClient(options: GatewayClientOptions): GatewayClient {
  return new HttpGatewayClient(options)
}

/**
 * Client of Circle Gateway's HTTP API, which our own gateway implements too. A submission has three outcomes: accepted, refused with a
 * reason, or unknown. After an unknown outcome the caller must ask the gateway what it has before doing anything else.
 */
class HttpGatewayClient implements AsyncDisposable {
  readonly #http: GatewayHttp
  readonly #domain: number
  /** Our own gateway only; read once. */
  #extensions: readonly unknown[] | undefined

  constructor(options: GatewayClientOptions) {
    this.#http = new GatewayHttp(options)
    this.#domain = options.domain
  }

  // Payments

  /**
   * Submits payments: many per call at our own gateway, one by one at Circle's. Returns one outcome per payment, in order. Idempotent by
   * nonce: submitting a payment again cannot pay twice.
   */
  async settle(payments: readonly SubmittedPayment[]): Promise<readonly Submission[]> {
    const submissions: Submission[] = []
    if (payments.length > 1 && (await this.#supports('settle-many').catch(() => false))) {
      for (let start = 0; start < payments.length; start += submittedMax) {
        submissions.push(...(await this.#settleMany(payments.slice(start, start + submittedMax))))
      }
    } else {
      await eachOf(payments, requestsConcurrentMax, async (payment, index) => {
        submissions[index] = await submit(() => this.#http.ask('POST', '/v1/x402/settle', payment), readSettlement)
      })
    }
    return submissions
  }

  async #settleMany(payments: readonly SubmittedPayment[]): Promise<readonly Submission[]> {
    const answer = await this.#http.ask('POST', '/v1/x402/settle-many', { payments }).catch((error: Error) => error)
    if (answer instanceof Error) return payments.map(() => ({ state: 'unknown', reason: answer.message }))
    const { status, body } = answer
    // The gateway was replaced by one without this extension.
    if (status === 404) this.#extensions = undefined
    const results = Array.isArray(body?.results) && body.results.length === payments.length ? body.results : undefined
    return payments.map((_, index) => readSettlement({ status, body: results?.[index] ?? undefined }))
  }

  async #supports(extension: 'transfer-changes' | 'settle-many'): Promise<boolean> {
    const answer = this.#extensions ?? (await this.#http.read('/v1/x402/supported'))?.extensions
    this.#extensions = Array.isArray(answer) ? answer : []
    return this.#extensions.includes(extension)
  }

  /** The payer's payment with that nonce; undefined when the gateway has none. */
  async findTransfer(from: Address, nonce: Hex): Promise<GatewayTransfer | undefined> {
    const body = await this.#http.read(`/v1/x402/transfers?from=${from}&nonce=${nonce}&pageSize=1`)
    const [first] = list(body, 'transfers')
    // A gateway that ignores the parameter returns unrelated transfers.
    return first === undefined || lower(first.nonce) !== nonce.toLowerCase() ? undefined : readTransfer(first)
  }

  async transfer(id: string): Promise<GatewayTransfer | undefined> {
    const body = await this.#http.read(`/v1/x402/transfers/${encodeURIComponent(id)}`)
    return body === undefined ? undefined : readTransfer(body)
  }

  /** One page of transfers from or to an address, newest first. `after` is the last id of the previous page. */
  async listTransfers(
    search: { readonly from?: Address; readonly to?: Address },
    after?: string,
  ): Promise<readonly GatewayTransfer[]> {
    const query = new URLSearchParams({
      ...search,
      pageSize: String(listedMax),
      ...(after === undefined ? {} : { pageAfter: after }),
    })
    return list(await this.#http.read(`/v1/x402/transfers?${query}`), 'transfers').map(readTransfer)
  }

  /**
   * Changes of payments since the last call. `cursor` is the `next` of that call, undefined at the first. Our own gateway returns a page
   * of all transfers that changed. Circle's has no such list, so each of `open` is requested. Overdue ones are requested from either
   * gateway, so that payments that it lost are noticed.
   *
   * Store `next` after the changes in `transfers`. Expect transfers that were reported before or that are not known yet: a change can
   * arrive before the answer of `settle` with its id. Throws `GatewayUnavailableError` when the gateway does not answer; keep the
   * cursor then.
   */
  async news(cursor: string | undefined, open: readonly OpenTransfer[]): Promise<News> {
    const hasChanges = await this.#supports('transfer-changes')
    const changes: Changes = hasChanges
      ? await this.#readChanges(cursor)
      : { transfers: [], next: cursor, hasMore: false, isRestarted: false }
    const listed = new Set(changes.transfers.map(({ id }) => id))
    const asked = open.filter(({ id, isOverdue }) => (isOverdue || !hasChanges) && !listed.has(id))
    const transfers = [...changes.transfers]
    const [lost, unanswered]: [string[], string[]] = [[], []]
    await eachOf(asked, requestsConcurrentMax, async ({ id }) => {
      const found = await this.transfer(id).catch((error: Error) => error)
      if (found instanceof Error) unanswered.push(id)
      else if (found === undefined) lost.push(id)
      else transfers.push(found)
    })
    return { ...changes, transfers, lost, unanswered }
  }

  async #readChanges(cursor: string | undefined): Promise<Changes> {
    const path = `/v1/x402/transfers?changedAfter=${encodeURIComponent(cursor ?? '')}&pageSize=${changesMax}`
    const { status, body } = await this.#http.ask('GET', path)
    if (status === 400 && cursor !== undefined) return { ...(await this.#readChanges(undefined)), isRestarted: true }
    if (status !== 200 || typeof body?.nextCursor !== 'string') {
      throw new GatewayUnavailableError(`answered ${status} to the request for changes`)
    }
    const transfers = list(body, 'transfers').map(readTransfer)
    return { transfers, next: body.nextCursor, hasMore: body.hasMore === true, isRestarted: false }
  }

  /** Total gas of our own gateway's batches; undefined at Circle's, which pays it itself. */
  async batchGas(): Promise<bigint | undefined> {
    const body = await this.#http.read('/v1/batches')
    return body === undefined ? undefined : whole(body.gasUsed)
  }

  // Balances

  /** Available balance in atomic USDC. */
  async balance(depositor: Address): Promise<bigint> {
    return (await this.balances([depositor])).get(depositor)!
  }

  async balances(depositors: readonly Address[]): Promise<ReadonlyMap<Address, bigint>> {
    const balances = new Map<string, bigint>()
    for (let start = 0; start < depositors.length; start += balancesMax) {
      const sources = depositors
        .slice(start, start + balancesMax)
        .map((depositor) => ({ depositor, domain: this.#domain }))
      const rows = list(await this.#http.read('/v1/balances', { token: 'USDC', sources }), 'balances')
      for (const row of rows) balances.set(lower(row.depositor), parseDecimal(row.balance))
    }
    return new Map(depositors.map((depositor) => [depositor, balances.get(lower(depositor)) ?? 0n]))
  }

  /** The last block whose deposits the gateway has processed. */
  async processedHeight(): Promise<bigint> {
    const body = await this.#http.read('/v1/info')
    const row = list(body, 'domains').find((candidate) => Number(candidate.domain) === this.#domain)
    if (row === undefined) throw new GatewayUnavailableError(`does not serve domain ${this.#domain}`)
    return whole(row.processedHeight)
  }

  // Withdrawals

  /** Requests a withdrawal. Idempotent: the same intent again is the same withdrawal. */
  async withdraw(burnIntent: BurnIntent, signature: Hex): Promise<Submission> {
    const intents = [{ burnIntent, signature }]
    return submit(() => this.#http.ask('POST', '/v1/transfer?enableForwarder=true', intents), readWithdrawalSubmission)
  }

  async withdrawal(id: string): Promise<GatewayWithdrawal | undefined> {
    const body = await this.#http.read(`/v1/transfer/${encodeURIComponent(id)}`)
    return body === undefined ? undefined : readWithdrawal(body)
  }

  /** The maximum fee for this intent at this moment, in atomic USDC. */
  async estimateFee(intent: BurnIntent): Promise<bigint> {
    const body = await this.#http.read('/v1/estimate?enableForwarder=true', [intent])
    const [first] = list(body, 'body')
    return whole((first?.burnIntent as { maxFee?: unknown } | undefined)?.maxFee)
  }

  close(): Promise<void> {
    return this.#http.close()
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }
}

/** JSON over a pool of connections. */
class GatewayHttp {
  readonly #pool: Pool
  readonly #basePath: string
  readonly #token: string | undefined
  readonly #timeoutMs: number

  constructor({ url, token, timeoutMs = 10_000, connectionsMax = 16 }: GatewayClientOptions) {
    const { origin, pathname } = new URL(url)
    this.#basePath = pathname.replace(/\/+$/, '')
    this.#token = token
    this.#timeoutMs = timeoutMs
    this.#pool = new Pool(origin, {
      connections: connectionsMax,
      headersTimeout: timeoutMs,
      bodyTimeout: timeoutMs,
      maxResponseSize: bodyBytesMax,
      connect: { timeout: timeoutMs },
    })
  }

  async ask(method: 'GET' | 'POST', path: string, content?: unknown): Promise<Answer> {
    return within(this.#timeoutMs, async (signal) => {
      const { statusCode, body } = await this.#pool.request({
        method,
        path: `${this.#basePath}${path}`,
        headers: {
          accept: 'application/json',
          ...(this.#token === undefined ? {} : { authorization: `Bearer ${this.#token}` }),
          ...(content === undefined ? {} : { 'content-type': 'application/json' }),
        },
        ...(content === undefined ? {} : { body: encode(content) }),
        signal,
      })
      return { status: statusCode, body: parseObject(await body.text()) }
    })
  }

  /** The body of a 200; undefined for a 404. Throws `GatewayUnavailableError` for any other answer. */
  async read(path: string, content?: unknown): Promise<Record<string, unknown> | undefined> {
    const { status, body } = await this.ask(content === undefined ? 'GET' : 'POST', path, content)
    // Only a JSON body is the gateway's own answer. A 404 page of a proxy says nothing about the object.
    if (status === 404 && body !== undefined) return undefined
    if (status !== 200 || body === undefined)
      throw new GatewayUnavailableError(`answered ${status} to ${path.split('?')[0]}`)
    return body
  }

  close(): Promise<void> {
    return this.#pool.close()
  }
}

/** A network error is an unknown outcome, never a refusal: the request may have arrived. */
async function submit(send: () => Promise<Answer>, read: (answer: Answer) => Submission): Promise<Submission> {
  try {
    return read(await send())
  } catch (error) {
    return { state: 'unknown', reason: error instanceof Error ? error.message : String(error) }
  }
}

function readSettlement({ status, body }: Answer): Submission {
  if (body?.success === true && typeof body.transaction === 'string' && body.transaction !== '') {
    return { state: 'received', id: body.transaction }
  }
  if (body?.success === false && typeof body.errorReason === 'string' && status < 500 && status !== 429) {
    return { state: 'failed', reason: body.errorReason }
  }
  return { state: 'unknown', reason: `the gateway answered ${status} without an outcome` }
}

function readWithdrawalSubmission({ status, body }: Answer): Submission {
  const id = body?.transferId ?? body?.id
  if (status < 300 && typeof id === 'string' && id !== '') return { state: 'received', id }
  // Only the gateway's own message is a refusal. An error page may come from a proxy after the gateway accepted the intent.
  const reason = body?.message ?? body?.errorReason
  if (status >= 400 && status < 500 && status !== 408 && status !== 429 && typeof reason === 'string') {
    return { state: 'failed', reason }
  }
  return { state: 'unknown', reason: `the gateway answered ${status} without an outcome` }
}

function readTransfer(row: Record<string, unknown>): GatewayTransfer {
  const state = row.status as GatewayTransferState
  if (typeof row.id !== 'string' || !gatewayTransferStates.includes(state))
    throw new GatewayUnavailableError('sent no transfer')
  const receipt = row.receipt as { root?: unknown; proof?: unknown } | null | undefined
  return {
    id: row.id,
    state,
    from: lower(row.fromAddress),
    to: lower(row.toAddress),
    amount: whole(row.amount),
    nonce: hash(row.nonce),
    reason: typeof row.failureReason === 'string' ? row.failureReason : undefined,
    batch: row.batchId === undefined || row.batchId === null ? undefined : whole(row.batchId),
    transactionHash: hash(row.transactionHash) ?? hash(row.txHash),
    receipt:
      hash(receipt?.root) !== undefined && Array.isArray(receipt?.proof)
        ? { root: hash(receipt?.root)!, proof: receipt.proof.map((item) => hash(item)!) }
        : undefined,
    place: readPlace(row.batchPlace),
  }
}

function readPlace(given: unknown): GatewayTransfer['place'] {
  const { position, size } = (given ?? {}) as { position?: unknown; size?: unknown }
  if (!isCount(position) || !isCount(size) || position > size) return undefined
  return { position, size }
}

function isCount(value: unknown): value is number {
  return Number.isInteger(value) && (value as number) >= 1 && (value as number) <= placesMax
}

/** The range of its column. */
const placesMax = 2 ** 31 - 1

const withdrawalStates: Readonly<Record<string, GatewayWithdrawal['state']>> = {
  pending: 'pending',
  // Arc's blocks are final immediately.
  confirmed: 'confirmed',
  finalized: 'confirmed',
  failed: 'failed',
  expired: 'failed',
}

function readWithdrawal(row: Record<string, unknown>): GatewayWithdrawal {
  const state = withdrawalStates[String(row.status)]
  if (state === undefined)
    throw new GatewayUnavailableError(`sent a withdrawal with the unknown status ${String(row.status).slice(0, 40)}`)
  const forwarding = row.forwardingDetails as { failureReason?: unknown } | null | undefined
  const reason = row.failureReason ?? forwarding?.failureReason ?? (row.status === 'expired' ? 'expired' : undefined)
  return {
    state,
    transactionHash: hash(row.transactionHash),
    reason: reason === undefined || reason === null ? undefined : String(reason),
    fee: readFee(row.fees),
  }
}

/**
 * Fees are decimal USDC. Circle's documentation does not say whether the total includes the forwarding fee, so the larger of the total
 * and the sum of the parts counts: otherwise an account could be refunded a fee that was really taken.
 */
function readFee(value: unknown): bigint | undefined {
  if (typeof value !== 'object' || value === null || !('total' in value)) return undefined
  const fees = value as Record<string, unknown>
  const parts = (Array.isArray(fees.perIntent) ? fees.perIntent : []).flatMap((row: Record<string, unknown>) => [
    row.baseFee,
    row.transferFee,
  ])
  const sum = [...parts, fees.forwardingFee].reduce((total: bigint, part) => total + parseDecimal(part ?? '0'), 0n)
  const total = parseDecimal(fees.total)
  return sum > total ? sum : total
}

function list(body: Record<string, unknown> | undefined, name: string): readonly Record<string, unknown>[] {
  const rows = body?.[name]
  if (!Array.isArray(rows)) throw new GatewayUnavailableError(`sent no ${name}`)
  return rows
}

function parseObject(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text)
    if (Array.isArray(value)) return value.length === 1 && typeof value[0] === 'object' ? value[0] : undefined
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : undefined
  } catch {
    return undefined
  }
}

function encode(content: unknown): string {
  return JSON.stringify(content, (_, value: unknown) => (typeof value === 'bigint' ? value.toString() : value))
}

function hash(value: unknown): Hex | undefined {
  return typeof value === 'string' && /^0x[0-9a-f]{64}$/i.test(value) ? (value.toLowerCase() as Hex) : undefined
}

function lower(value: unknown): string {
  return String(value).toLowerCase()
}

function whole(value: unknown): bigint {
  if (!/^\d{1,30}$/.test(String(value))) throw new GatewayUnavailableError('sent an invalid number')
  return BigInt(String(value))
}

/** Balances come as decimal USDC. */
function parseDecimal(value: unknown): bigint {
  const [, whole, fraction = ''] = /^(\d+)(?:\.(\d{1,6}))?$/.exec(String(value)) ?? []
  if (whole === undefined) throw new GatewayUnavailableError('sent an invalid balance')
  return BigInt(whole) * 1_000_000n + BigInt(fraction.padEnd(6, '0'))
}

/** The gateway did not answer, or answered outside its interface. Implies nothing about any payment. */
export class GatewayUnavailableError extends Error {
  constructor(what: string) {
    super(`the gateway ${what}`)
    this.name = 'GatewayUnavailableError'
  }
}
