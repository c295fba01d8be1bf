import { type Address, getAddress, type Hex } from 'viem'
import type { Database } from '../src/db/database.ts'
import { ServiceError } from '../src/errors.ts'
import type { Access } from './access.ts'
import type { BatchReceipts } from './batch-receipts.ts'
import { readBatches, sumBatchGas } from './batch-report.ts'
import { IntentRefusedError, readIntents, readSignedIntents, specHashOf } from './burn-intent.ts'
import { readChainState } from './chain/state.ts'
import { readBalances, readDeposits } from './depositors.ts'
import type { Failpoint } from './failpoints.ts'
import { type JsonAnswer, type JsonRequest, type Route, refusal } from './json-server.ts'
import { PaymentRefusedError, readPayment } from './payment.ts'
import { ChainBehindError, requireSettleable, type SettleOptions, type Settler } from './settle.ts'
import { domainName, domainVersion, type GatewayTerms, lowerCase, scheme } from './terms.ts'
import { CursorRefusedError, changedTransfers } from './transfer-changes.ts'
import {
  findTransfer,
  searchTransfers,
  type TransferSearch,
  type TransferStatus,
  transferStatuses,
} from './transfers.ts'
import { findWithdrawal, type Withdrawals } from './withdrawals.ts'

export type RoutesOptions = {
  readonly database: Database
  readonly terms: GatewayTerms
  readonly relayer: Address
  readonly settler: Settler
  readonly settleOptions: SettleOptions
  readonly withdrawals: Withdrawals
  readonly receipts: BatchReceipts
  readonly access: Access
  readonly clock: () => number
  readonly failpoint: Failpoint
  /** Makes the worker check immediately whether there is something to send. */
  readonly wake: () => void
}

const uuidPattern = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i
const pageSizeMax = 100
const pageSizeDefault = 50
/** Two full batches; about 600 kB with their proofs. */
const changesMax = 500
const sourcesMax = 100
const batchesMax = 100

/**
 * Listed in `supported`: GET /v1/x402/transfers accepts `changedAfter`, and POST /v1/x402/settle-many exists. Circle's gateway has
 * neither.
 */
const extensions = ['receipt', 'transfer-changes', 'settle-many'] as const
const paymentsMax = 100

/** Circle's paths and their handlers. */
export function gatewayRoutes(options: RoutesOptions): ReadonlyMap<string, Route> {
  const routes: Record<string, Answerer> = {
    'GET /v1/x402/supported': answerSupported,
    'POST /v1/x402/verify': withoutWrongToken(answerVerify),
    'POST /v1/x402/settle': withoutWrongToken(answerSettle),
    'POST /v1/x402/settle-many': withToken(answerSettleMany),
    'GET /v1/x402/transfers': withToken(answerTransfers),
    'GET /v1/x402/transfers/:id': withToken(answerTransfer),
    'POST /v1/balances': answerBalances,
    'POST /v1/deposits': answerDeposits,
    'GET /v1/info': answerInfo,
    'POST /v1/estimate': answerEstimate,
    'POST /v1/transfer': answerWithdraw,
    'GET /v1/transfer/:id': answerWithdrawal,
    // Our own: the cost of settlement.
    'GET /v1/batches': withToken(answerBatches),
  }
  return new Map(Object.entries(routes).map(([name, route]) => [name, (request) => route(options, request)]))
}

type Answerer = (options: RoutesOptions, request: JsonRequest) => Promise<JsonAnswer>

/** These routes show payments of every account: only the service that settles here may call them. */
function withToken(answer: Answerer): Answerer {
  return async (options, request) => {
    return options.access.hasToken(request.authorization) ? answer(options, request) : tokenRefusal
  }
}

/** A service with a wrong token must learn that its token is wrong, not that its small payments have failed. */
function withoutWrongToken(answer: Answerer): Answerer {
  return async (options, request) => {
    const { authorization } = request
    return authorization === undefined || options.access.hasToken(authorization)
      ? answer(options, request)
      : tokenRefusal
  }
}

const tokenRefusal: JsonAnswer = {
  ...refusal(401, 'This needs the bearer token of the gateway (GATEWAY_TOKEN).'),
  headers: { 'www-authenticate': 'Bearer realm="Penny gateway"' },
}

/** Answers errors that a route did not handle. */
export function answerFailure(error: unknown, onError: (error: unknown) => void): JsonAnswer {
  if (error instanceof ChainBehindError) return { ...refusal(503, error.message), headers: { 'retry-after': '1' } }
  if (error instanceof IntentRefusedError || error instanceof BadRequestError || error instanceof CursorRefusedError) {
    return refusal(400, error.message)
  }
  if (error instanceof ServiceError && error.code === 'overloaded') {
    return { ...refusal(503, error.message), headers: { 'retry-after': '1' } }
  }
  onError(error)
  return refusal(500, 'Internal gateway error. Query the outcome before you retry.')
}

async function answerSupported({ terms }: RoutesOptions): Promise<JsonAnswer> {
  const extra = {
    name: domainName,
    version: domainVersion,
    verifyingContract: getAddress(terms.wallet),
    assets: [{ symbol: 'USDC', address: getAddress(terms.usdc), decimals: 6 }],
  }
  const kinds = [{ x402Version: 2, scheme, network: terms.network, extra }]
  return { status: 200, body: { kinds, extensions, signers: {} } }
}

async function answerVerify(
  { terms, settleOptions, clock, access }: RoutesOptions,
  { body, authorization }: JsonRequest,
): Promise<JsonAnswer> {
  try {
    const payment = readPayment(body, terms, clock())
    access.requireServed(payment, authorization)
    await requireSettleable(settleOptions, payment)
    return { status: 200, body: { isValid: true, payer: getAddress(payment.payer) } }
  } catch (error) {
    if (!(error instanceof PaymentRefusedError)) throw error
    const { reason, payer } = error
    return { status: 200, body: { isValid: false, invalidReason: reason, ...payerOf(payer) } }
  }
}

async function answerSettle(options: RoutesOptions, { body, authorization }: JsonRequest): Promise<JsonAnswer> {
  const { terms, settler, clock, failpoint, access } = options
  try {
    const payment = readPayment(body, terms, clock())
    access.requireServed(payment, authorization)
    const transaction = await settler.settle(payment)
    failpoint('transfer_stored')
    return {
      status: 200,
      body: { success: true, transaction, network: terms.network, payer: getAddress(payment.payer) },
    }
  } catch (error) {
    if (!(error instanceof PaymentRefusedError)) throw error
    const { reason, payer } = error
    const answer = { success: false, errorReason: reason, transaction: '', network: terms.network, ...payerOf(payer) }
    return { status: 400, body: answer }
  }
}

/** Our own: many payments in one call. Each gets the answer of `settle`, in order; null when its outcome is unknown. */
async function answerSettleMany(options: RoutesOptions, { body, ...request }: JsonRequest): Promise<JsonAnswer> {
  const { payments } = (body ?? {}) as { readonly payments?: unknown }
  if (!Array.isArray(payments) || payments.length === 0 || payments.length > paymentsMax) {
    throw new BadRequestError(`payments must be a list of 1 to ${paymentsMax}.`)
  }
  const answers = await Promise.allSettled(
    payments.map((payment) => answerSettle(options, { ...request, body: payment })),
  )
  const failed = answers.find((answer) => answer.status === 'rejected')
  // All failed for the same reason, for example because the chain is behind: answer as for a single payment.
  if (failed !== undefined && answers.every(({ status }) => status === 'rejected')) throw failed.reason
  const results = answers.map((answer) => (answer.status === 'fulfilled' ? answer.value.body : null))
  return { status: 200, body: { results } }
}

function payerOf(payer: Address | undefined): { readonly payer?: Address } {
  return payer === undefined ? {} : { payer: getAddress(payer) }
}

async function answerTransfer(
  { database, terms, receipts }: RoutesOptions,
  { path }: JsonRequest,
): Promise<JsonAnswer> {
  const id = readUuid(path.slice(path.lastIndexOf('/') + 1))
  const transfer = await findTransfer(database, terms, receipts, id)
  return transfer === undefined ? refusal(404, `There is no transfer ${id}.`) : { status: 200, body: transfer }
}

async function answerTransfers(options: RoutesOptions, { path, query }: JsonRequest): Promise<JsonAnswer> {
  if (query.has('changedAfter')) return answerChanges(options, query)
  const { database, terms } = options
  const search = readSearch(query)
  const network = query.get('network')
  const token = query.get('token')
  if ((network !== null && network !== terms.network) || (token !== null && token !== 'USDC')) {
    return { status: 200, body: { transfers: [] } }
  }
  const page = await searchTransfers(database, terms, search)
  const links = [
    ...(page.hasNext ? [linkTo('pageAfter', page.transfers.at(-1)?.id, 'next')] : []),
    ...(page.hasPrevious ? [linkTo('pageBefore', page.transfers[0]?.id, 'prev')] : []),
  ].filter((link) => link !== undefined)
  const headers = links.length === 0 ? {} : { headers: { link: links.join(', ') } }
  return { status: 200, body: { transfers: page.transfers }, ...headers }

  function linkTo(name: string, id: string | undefined, relation: string): string | undefined {
    if (id === undefined) return undefined
    const next = new URLSearchParams(query)
    next.delete('pageAfter')
    next.delete('pageBefore')
    next.set(name, id)
    return `<${path}?${next}>; rel="${relation}"`
  }
}

/** Our own: the changes since the last call, instead of one call for each open payment. */
async function answerChanges(options: RoutesOptions, query: URLSearchParams): Promise<JsonAnswer> {
  const conflictingName = [...query.keys()].find((name) => !['changedAfter', 'from', 'to', 'pageSize'].includes(name))
  if (conflictingName !== undefined) {
    throw new BadRequestError(
      `${conflictingName.slice(0, 40)} cannot be combined with changedAfter; from, to and pageSize can.`,
    )
  }
  const [from, to, after] = [query.get('from'), query.get('to'), query.get('changedAfter')]
  const page = await changedTransfers(options, {
    after: after === '' || after === null ? undefined : after,
    from: from === null ? undefined : readAddress(from, 'from'),
    to: to === null ? undefined : readAddress(to, 'to'),
    pageSize: readPageSize(query, changesMax),
  })
  return { status: 200, body: page }
}

function readPageSize(query: URLSearchParams, max: number): number {
  const pageSize = Number(query.get('pageSize') ?? pageSizeDefault)
  if (Number.isInteger(pageSize) && pageSize >= 1 && pageSize <= max) return pageSize
  throw new BadRequestError(`pageSize must be from 1 to ${max}.`)
}

function readSearch(query: URLSearchParams): TransferSearch {
  const text = (name: string) => query.get(name) ?? undefined
  const [from, to, nonce, status] = [text('from'), text('to'), text('nonce'), text('status')]
  if (status !== undefined && !transferStatuses.includes(status as TransferStatus)) {
    throw new BadRequestError(`status must be one of ${transferStatuses.join(', ')}.`)
  }
  if (status !== undefined && from === undefined && to === undefined && nonce === undefined) {
    throw new BadRequestError('status requires from, to or nonce.')
  }
  const [pageAfter, pageBefore] = [text('pageAfter'), text('pageBefore')]
  if (pageAfter !== undefined && pageBefore !== undefined) {
    throw new BadRequestError('Send pageAfter or pageBefore, not both.')
  }
  return {
    from: from === undefined ? undefined : readAddress(from, 'from'),
    to: to === undefined ? undefined : readAddress(to, 'to'),
    nonce: nonce === undefined ? undefined : readNonce(nonce),
    status: status as TransferStatus | undefined,
    startDate: readDate(text('startDate'), 'startDate'),
    endDate: readDate(text('endDate'), 'endDate'),
    pageSize: readPageSize(query, pageSizeMax),
    pageAfter: pageAfter === undefined ? undefined : readUuid(pageAfter),
    pageBefore: pageBefore === undefined ? undefined : readUuid(pageBefore),
  }
}

async function answerBalances({ database, terms }: RoutesOptions, { body }: JsonRequest): Promise<JsonAnswer> {
  const balances = await readBalances(database, terms, readSources(body, terms))
  return { status: 200, body: { token: 'USDC', balances } }
}

async function answerDeposits({ database, terms }: RoutesOptions, { body }: JsonRequest): Promise<JsonAnswer> {
  const deposits = await readDeposits(database, terms, readSources(body, terms))
  return { status: 200, body: { token: 'USDC', deposits } }
}

/** The requested depositors on this chain. */
function readSources(body: unknown, terms: GatewayTerms): readonly Hex[] {
  const { token, sources } = (body ?? {}) as { readonly token?: unknown; readonly sources?: unknown }
  if (token !== 'USDC') throw new BadRequestError('token must be USDC.')
  if (!Array.isArray(sources) || sources.length === 0 || sources.length > sourcesMax) {
    throw new BadRequestError(`sources must be a list of 1 to ${sourcesMax}.`)
  }
  return sources.flatMap((source: { readonly depositor?: unknown; readonly domain?: unknown } | null) => {
    const depositor = readAddress(source?.depositor, 'depositor')
    return source?.domain === undefined || source.domain === terms.chainId ? [depositor] : []
  })
}

async function answerInfo({ database, terms }: RoutesOptions): Promise<JsonAnswer> {
  const { processedHeight } = await readChainState(database)
  const contract = { address: getAddress(terms.wallet), supportedTokens: ['USDC'] }
  const domain = {
    chain: 'Arc',
    network: terms.network,
    domain: terms.chainId,
    walletContract: contract,
    minterContract: contract,
    processedHeight: processedHeight.toString(),
    // An intent must be valid long enough to be executed; one that has expired is refused.
    burnIntentExpirationHeight: (processedHeight + 1n).toString(),
  }
  return { status: 200, body: { version: 1, domains: [domain] } }
}

/** There are no fees: the operator pays the gas. */
async function answerEstimate({ terms }: RoutesOptions, { body, query }: JsonRequest): Promise<JsonAnswer> {
  const intents = readIntents(body)
  const estimates = intents.map(({ maxBlockHeight, spec }) => ({
    burnIntent: {
      maxBlockHeight: maxBlockHeight.toString(),
      maxFee: '0',
      spec: { ...spec, value: spec.value.toString() },
    },
  }))
  const hashed = intents.map(({ spec }) => ({ specHash: specHashOf(spec) }))
  return { status: 200, body: { body: estimates, fees: feesOf(hashed, terms, query) } }
}

function feesOf(intents: readonly { readonly specHash: string }[], terms: GatewayTerms, query?: URLSearchParams) {
  const perIntent = intents.map(({ specHash }) => {
    return { transferSpecHash: specHash, domain: terms.chainId, baseFee: '0', transferFee: '0' }
  })
  const forwarding = query?.get('enableForwarder') === 'true' ? { forwardingFee: '0' } : {}
  return { total: '0', token: 'USDC', perIntent, ...forwarding }
}

async function answerWithdraw(options: RoutesOptions, { body, query }: JsonRequest): Promise<JsonAnswer> {
  const { database, terms, relayer, withdrawals } = options
  if (query.get('enableForwarder') !== 'true') {
    throw new BadRequestError('Add ?enableForwarder=true: this gateway executes withdrawals itself.')
  }
  const intents = readSignedIntents(body, terms, relayer)
  const { processedHeight } = await readChainState(database)
  const transferId = await withdrawals.accept(intents, processedHeight)
  options.wake()
  const fees = feesOf(intents, terms, query)
  return { status: 201, body: { transferId, id: transferId, status: 'pending', fees } }
}

async function answerWithdrawal({ database, terms }: RoutesOptions, { path }: JsonRequest): Promise<JsonAnswer> {
  const id = readUuid(path.slice(path.lastIndexOf('/') + 1))
  const withdrawal = await findWithdrawal(database, id)
  if (withdrawal === undefined) return refusal(404, `There is no transfer ${id}.`)
  const { status, transactionHash, failure, intents } = withdrawal
  return {
    status: 200,
    body: {
      id,
      destinationDomain: terms.chainId,
      status,
      burnIntents: intents.map(({ specHash, maxBlockHeight, transactionHash: hash }) => {
        return { transferSpecHash: specHash, maxBlockHeight, maxFee: '0', transactionHash: hash }
      }),
      transactionHash,
      forwardingDetails: { forwardingEnabled: true, ...(failure === null ? {} : { failureReason: failure }) },
      fees: feesOf(intents, terms),
    },
  }
}

async function answerBatches({ database }: RoutesOptions): Promise<JsonAnswer> {
  return {
    status: 200,
    body: { gasUsed: await sumBatchGas(database), batches: await readBatches(database, batchesMax) },
  }
}

function readAddress(value: unknown, name: string): Hex {
  if (typeof value === 'string' && /^0x[0-9a-fA-F]{40}$/.test(value)) return lowerCase(value)
  throw new BadRequestError(`${name} must be an address, 0x and 40 hex digits.`)
}

function readNonce(text: string): Hex {
  if (/^0x[0-9a-fA-F]{64}$/.test(text)) return lowerCase(text)
  throw new BadRequestError('nonce must be 0x and 64 hex digits.')
}

function readUuid(text: string): string {
  if (uuidPattern.test(text)) return text.toLowerCase()
  throw new BadRequestError('An id is a UUID.')
}

function readDate(text: string | undefined, name: string): Date | undefined {
  if (text === undefined) return undefined
  const date = new Date(text)
  if (/^\d{4}-/.test(text) && !Number.isNaN(date.getTime())) return date
  throw new BadRequestError(`${name} must be an ISO 8601 instant.`)
}

class BadRequestError extends Error {
  constructor(message: string) {
    super(message)
    this.name = 'BadRequestError'
  }
}
