import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { after, before, test } from 'node:test'
import { promisify } from 'node:util'
import { decodePaymentRequiredHeader } from '@x402/core/http'
import { createSIWxPayload, encodeSIWxHeader } from '@x402/extensions/sign-in-with-x'
import { createManagementKey, scopes } from '../../src/identity/management-keys.ts'
import { addMember } from '../../src/identity/members.ts'
import { createPerson } from '../../src/identity/people.ts'
import { parse } from '../../src/money/usdc.ts'
import {
  type DocumentedRoute,
  exampleBody,
  isForPrograms,
  type OpenApi,
  type Recorded,
  routesOf,
} from '../../src/site/docs/api-reference.ts'
import { curlOf } from '../../src/site/docs/request-samples.ts'
import type { Json } from '../support/dashboard-client.ts'
import { type MoneyService, openWallet, startMoneyService } from '../support/money-service.ts'
import { until } from '../support/until.ts'
import { openX402Wallet, type X402Wallet } from '../support/x402-wallet.ts'

// Every curl of the API reference is run as printed, in its order. `npm run generate:samples` records the answers that the pages show.

const samplesFile = new URL('../../src/site/docs/samples.json', import.meta.url)
const document = JSON.parse(readFileSync(new URL('../../openapi.json', import.meta.url), 'utf8')) as OpenApi
const routes = routesOf(document).filter(isForPrograms)
const entriesMax = 2
const isRecording = process.env.RECORD_SAMPLES === '1'

let money: MoneyService
let wallet: X402Wallet
let environment: Record<string, string>
const opened = new AsyncDisposableStack()
before(async () => {
  const ending = { after: (undo: () => unknown) => opened.defer(async () => void (await undo())) }
  money = await startMoneyService(ending, { environment: { SETTLE_AFTER_MS: '0' } })
  wallet = await openX402Wallet(money, '1')
})
after(() => opened.disposeAsync())

test('every curl of the API reference runs as printed, and answers what the page shows', async () => {
  await prepare()
  const samples: Record<string, unknown> = {}
  const recorded = JSON.parse(readFileSync(samplesFile, 'utf8')) as Recorded
  for (const route of routes) {
    const { operationId } = route.operation
    const { status, text } = await run(route)
    assert.ok(status in route.operation.responses && status.startsWith('2'), `${operationId}: ${status} ${text}`)
    const answer = shownOf(text)
    if (answer !== undefined) samples[operationId] = answer
    if (!isRecording) assertAlike(answer, recorded[operationId], operationId)
  }
  const stream = await run(routes.find(({ operation }) => operation.operationId === 'createChatCompletion')!, true)
  const events = masked(stream.text).trim().split('\n\n')
  assert.equal(events.at(-1), 'data: [DONE]')
  samples['createChatCompletion.stream'] = [...events.slice(0, 3), '…', ...events.slice(-3)].join('\n\n')
  if (isRecording) writeFileSync(samplesFile, `${JSON.stringify(samples, null, 2)}\n`)
})

/** An account with money, one request and a management key, and a wallet with credit: what the variables of the page stand for. */
async function prepare(): Promise<void> {
  const { database, publicUrl } = money.service
  const { partition, id: accountId, apiKey, address } = await money.openAccount()
  // On chain, or the solvency check would freeze the ledger.
  await (await openWallet(money, '5')).send(address, parse('5'))
  const person = await database.transaction((connection) => createPerson(connection, 'Ada'))
  const owner = { partition, accountId }
  const { secret } = await database.transaction(async (connection) => {
    await addMember(connection, owner, { personId: person, role: 'owner' })
    return createManagementKey(connection, owner, { name: 'reference', scopes, expiresAt: undefined, madeBy: person })
  })
  environment = {
    PATH: process.env.PATH!,
    PENNY_URL: publicUrl,
    OPENAI_BASE_URL: `${publicUrl}/v1`,
    OPENAI_API_KEY: apiKey,
    PENNY_MANAGEMENT_KEY: secret,
  }
  const headers = { authorization: `Bearer ${apiKey}` }
  await until(async () => {
    const key = (await (await fetch(`${publicUrl}/api/key`, { headers })).json()) as Json
    return key.available_atomic !== '0'
  })
  // The first snapshot of what is owed to all accounts.
  await until(async () => (await fetch(`${publicUrl}/api/liabilities/proof`, { headers })).ok)
  const chat = routes.find(({ operation }) => operation.operationId === 'createChatCompletion')!
  const { text } = await run(chat)
  environment.REQUEST_ID = JSON.parse(text).id.replace('chatcmpl-', 'req_')
  // Credit, so that there is something to refund.
  const question = { max_tokens: 50_000, messages: [{ role: 'user', content: 'Hi [sandbox:tokens 3]' }] }
  const paid = await wallet.paying(`${publicUrl}/x402/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(question),
  })
  assert.equal(paid.status, 200, await paid.text())
  // Receipts are signed when the charge is paid.
  const receipts = routes.find(({ operation }) => operation.operationId === 'exportReceipts')!
  await until(async () => (await run(receipts)).text !== '')
}

/** Runs the curl of a route in a shell, with objects of its own to change or delete. */
async function run(route: DocumentedRoute, stream = false): Promise<{ status: string; text: string }> {
  const body = exampleBody(route.operation)
  const curl = curlOf(route, stream ? { ...(body as object), stream: true } : body)
  const make = async (path: string, given: object) => (await manage('POST', path, given)).id as string
  if (curl.includes('$KEY_ID')) environment.KEY_ID = await make('/api/keys', { name: 'worker' })
  if (curl.includes('$WEBHOOK_ID')) {
    const url = 'https://example.com/penny-events'
    environment.WEBHOOK_ID = await make('/api/webhooks', { url, types: ['request.ended'] })
    await manage('POST', `/api/webhooks/${environment.WEBHOOK_ID}/test`)
    const { data } = await manage('GET', `/api/webhooks/${environment.WEBHOOK_ID}/deliveries`)
    environment.EVENT_ID = data[0].event_id ?? data[0].id
  }
  const { PENNY_URL } = environment
  if (curl.includes('$X402_PAYMENT')) {
    const headers = { 'content-type': 'application/json' }
    const url = `${PENNY_URL}/x402/v1/chat/completions`
    environment.X402_PAYMENT = await wallet.sign(
      await fetch(url, { method: 'POST', headers, body: JSON.stringify(body) }),
    )
  }
  if (curl.includes('$X402_SIGN_IN')) environment.X402_SIGN_IN = await signIn(`${PENNY_URL}/x402/v1/balance`)
  const quiet = `curl() { command curl -sS -w '\\n%{http_code}' "$@"; }\n${curl}`
  const { stdout } = await promisify(execFile)('bash', ['-c', quiet], { env: environment })
  const end = stdout.lastIndexOf('\n')
  return { status: stdout.slice(end + 1), text: stdout.slice(0, end) }
}

async function manage(method: string, path: string, body?: object): Promise<Json> {
  const answer = await fetch(`${environment.PENNY_URL}${path}`, {
    method,
    headers: { authorization: `Bearer ${environment.PENNY_MANAGEMENT_KEY}`, 'content-type': 'application/json' },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  })
  assert.ok(answer.ok, `${method} ${path}: ${answer.status}`)
  return answer.json()
}

async function signIn(url: string): Promise<string> {
  const asked = await fetch(url)
  const { extensions } = decodePaymentRequiredHeader(asked.headers.get('payment-required')!)
  const { info, supportedChains } = extensions!['sign-in-with-x'] as {
    info: { domain: string }
    supportedChains: object[]
  }
  const complete = { ...info, ...supportedChains[0]! }
  return encodeSIWxHeader(await createSIWxPayload(complete as never, wallet.account, `http://${info.domain}`))
}

/** The answer as the page shows it: long lists cut, secrets and the address of this run replaced. */
function shownOf(text: string): unknown {
  if (text === '') return undefined
  const shown = masked(text)
  if (!/^\{[^\n]*$/.test(shown.trim()) && shown.includes('\n')) return shown.split('\n')[0]
  return cut(JSON.parse(shown))
}

function masked(text: string): string {
  return text
    .replaceAll(money.service.publicUrl, 'http://localhost:8402')
    .replaceAll(/(penny_(?:mgmt_)?)\w{20,}/g, '$14Zk0…')
}

function cut(value: unknown): unknown {
  if (Array.isArray(value)) return value.slice(0, entriesMax).map(cut)
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, cut(member)]))
}

/** The same members of the same types. An empty list, and null, say nothing about what they may contain. */
function assertAlike(now: unknown, shown: unknown, place: string): void {
  if (now === null || shown === null) return
  assert.equal(typeof now, typeof shown, place)
  if (typeof now !== 'object' || typeof shown !== 'object') return
  if (Array.isArray(now) && Array.isArray(shown)) {
    if (now.length > 0 && shown.length > 0) assertAlike(now[0], shown[0], `${place}[]`)
    return
  }
  assert.deepEqual(Object.keys(now!).sort(), Object.keys(shown!).sort(), place)
  for (const [name, member] of Object.entries(now!)) assertAlike(member, (shown as never)[name], `${place}.${name}`)
}
