import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { decodePaymentRequiredHeader, decodePaymentResponseHeader } from '@x402/core/http'
import { parsePaymentRequired } from '@x402/core/schemas'
import {
  type DiscoveryExtension,
  validateDiscoveryExtension,
  validateDiscoveryExtensionSpec,
} from '@x402/extensions/bazaar'
import {
  appendPaymentIdentifierToExtensions,
  declarePaymentIdentifierExtension,
} from '@x402/extensions/payment-identifier'
import { createSIWxPayload, encodeSIWxHeader, parseSIWxHeader } from '@x402/extensions/sign-in-with-x'
import OpenAI from 'openai'
import { generatePrivateKey, type PrivateKeyAccount, privateKeyToAccount } from 'viem/accounts'
import { startModelServer } from '../../sandbox/model/server.ts'
import { readConfig } from '../../src/config/config.ts'
import type { Database } from '../../src/db/database.ts'
import { createLoginToken } from '../../src/identity/login-links.ts'
import { findViolations } from '../../src/ledger/audit.ts'
import { findWallet } from '../../src/ledger/wallet-accounts.ts'
import { verifyReceipt } from '../../src/receipts/verify-receipt.ts'
import { chainOptions, openChain } from '../../src/settlement/chain.ts'
import { checkSolvency, isSolvent } from '../../src/settlement/solvency.ts'
import { receiptCrypto } from '../../src/signer/receipt-crypto.ts'
import { decodeHeader, encodeHeader } from '../../src/x402/header.ts'
import { atEnd } from '../support/at-end.ts'
import { DashboardClient, type Json, signedMessage } from '../support/dashboard-client.ts'
import { startTestedService } from '../support/documented-answers.ts'
import { partitions } from '../support/ledger.ts'
import { gatewayOf, type MoneyService, startMoneyService } from '../support/money-service.ts'
import { untilFits } from '../support/until.ts'
import { openX402Wallet, type PaymentPayload, type X402Wallet } from '../support/x402-wallet.ts'

// Public x402 clients, unmodified, against the whole service with its gateway, its settlement and its chain.

const question = {
  model: 'gpt-5.6-terra',
  max_tokens: 2_000,
  messages: [{ role: 'user' as const, content: 'What is a penny?' }],
}

type Answer = {
  readonly error?: { readonly code: string; readonly message: string; readonly reason?: string } & Record<
    string,
    string
  >
}
type Balance = Record<
  'credit_atomic' | 'refundable_atomic' | 'held_atomic' | 'charged_atomic' | 'paid_atomic' | 'refunded_atomic',
  string
> & {
  readonly refunds: readonly { readonly id: string; readonly state: string; readonly amount_atomic: string }[]
}

let frozenMs: number | undefined
let money: MoneyService
let database: Database
let publicUrl: string
let base: string
let chat: string
const opened = new AsyncDisposableStack()
before(async () => {
  const ending = { after: (undo: () => unknown) => opened.defer(async () => void (await undo())) }
  const ratesNow = () => frozenMs ?? performance.now()
  money = await startMoneyService(ending, { environment: { TRUST_PROXY: '1' }, ratesNow })
  database = money.service.database
  publicUrl = money.service.publicUrl
  base = `${publicUrl}/x402/v1`
  chat = `${base}/chat/completions`
})
after(async () => {
  try {
    assert.deepEqual(await findViolations(database), [])
  } finally {
    await opened.disposeAsync()
  }
})
const ask = (headers: Record<string, string> = {}, body: object = question) =>
  fetch(chat, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
  })
/** Reads the body too: what is not read keeps its connection. */
const statusOf = async (asked: Promise<Response>) => {
  const answer = await asked
  await answer.arrayBuffer()
  return answer.status
}
const codeOf = async (answer: Response) => {
  const { error } = (await answer.json()) as Answer
  return [answer.status, error?.code, error?.reason]
}
const askedFor = (required: Response) =>
  BigInt(decodePaymentRequiredHeader(required.headers.get('payment-required')!).accepts[0]!.amount)
const balanceOf = async (wallet: X402Wallet) => (await (await wallet.signingIn()(`${base}/balance`)).json()) as Balance
/** As a public client signs the challenge of a 402, with some of it changed. */
const signIn = async (account: PrivateKeyAccount, changes: Record<string, string> = {}) => {
  const asked = await fetch(`${base}/balance`)
  const { extensions } = decodePaymentRequiredHeader(asked.headers.get('payment-required')!)
  const { info, supportedChains } = extensions!['sign-in-with-x'] as {
    readonly info: Record<string, string>
    readonly supportedChains: readonly object[]
  }
  const complete = { ...info, ...supportedChains[0]!, ...changes }
  const { domain } = complete as { readonly domain?: string }
  return encodeSIWxHeader(await createSIWxPayload(complete as never, account, `http://${domain}`))
}
const rows = async () => {
  const [row] = await database.query<{ count: number }>(
    `select ((select count(*) from transfers) + (select count(*) from x402_wallets) + (select count(*) from requests)
             + (select count(*) from replays) + (select count(*) from x402_sign_ins))::int as count`,
  )
  return row!.count
}

test('an agent without an account buys streamed completions; the second is asked for less; the rest comes back', async () => {
  const seller = money.money.terms.seller
  const sellerBefore = await gatewayOf(money, seller)
  const wallet = await openX402Wallet(money, '1')
  const amounts: bigint[] = []
  const watching: typeof fetch = async (input, init) => {
    const answer = await fetch(input, init)
    if (answer.status === 402) amounts.push(askedFor(answer))
    return answer
  }
  const openai = new OpenAI({ baseURL: base, apiKey: 'none', fetch: wallet.netting(watching), maxRetries: 0 })
  const buy = async (maxTokens: number) => {
    const stream = await openai.chat.completions.create({ ...question, max_tokens: maxTokens, stream: true })
    let text = ''
    for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? ''
    return text
  }
  assert.match(await buy(2_000), /sandbox model/)
  const first = await balanceOf(wallet)
  assert.equal(BigInt(first.paid_atomic), amounts[0]!)
  assert.equal(BigInt(first.credit_atomic), BigInt(first.paid_atomic) - BigInt(first.charged_atomic))
  assert.ok(BigInt(first.credit_atomic) > 0n && first.held_atomic === '0')
  // More than the credit covers: anonymous first, then asked for what the credit does not cover.
  amounts.length = 0
  await buy(4_000)
  assert.equal(amounts.length, 2)
  assert.equal(amounts[1], amounts[0]! - BigInt(first.credit_atomic))
  // Credit covers this one: served at once, nothing is paid.
  amounts.length = 0
  await buy(8)
  assert.equal(amounts.length, 1)
  const before = await balanceOf(wallet)
  assert.equal(BigInt(before.paid_atomic), BigInt(first.paid_atomic) + (await paidSince(1)))
  const refundOf = (body: object) =>
    wallet.signingIn()(`${base}/refund`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    })
  const dust = await refundOf({ amount: '0.000001' })
  assert.equal(dust.status, 400)
  assert.match(
    ((await dust.json()) as Answer).error!.message,
    /0\.000001 USDC cannot be refunded: the minimum is 0\.1 USDC, or everything that is left \(0\.\d+ USDC\)/,
  )
  const refunded = await refundOf({})
  assert.equal(refunded.status, 202)
  const refund = (await refunded.json()) as Balance['refunds'][number]
  assert.equal(refund.amount_atomic, before.refundable_atomic)
  await untilFits(
    () => balanceOf(wallet),
    ({ refunds }) => refunds[0]?.state === 'confirmed',
  )
  const end = await balanceOf(wallet)
  assert.deepEqual([end.refundable_atomic, end.held_atomic, end.refunded_atomic], ['0', '0', refund.amount_atomic])
  // What charges have not covered of the gas of two payments and a refund stays.
  const charged = BigInt(end.charged_atomic)
  const kept = charged + BigInt(end.credit_atomic)
  assert.equal(kept, 6_000n)
  await untilFits(
    () => gatewayOf(money, wallet.address),
    (left) => left === 1_000_000n - kept,
  )
  await untilFits(
    () => gatewayOf(money, seller),
    (has) => has === sellerBefore + kept,
  )
  const chain = await openChain(chainOptions(money.money))
  assert.equal(isSolvent(await checkSolvency({ database, chain, seller })), true)
  assert.deepEqual(await findViolations(database), [])

  async function paidSince(offset: number): Promise<bigint> {
    const payments = await database.query<{ value: bigint }>(
      "select amount as value from transfers where kind = 'x402' and counterparty = $1 order by created_at offset $2",
      [wallet.address, offset],
    )
    return payments.reduce((sum, { value }) => sum + value, 0n)
  }
})

test('headers are those of the public library, and what is paid is answered with a payment response', async () => {
  const required = await ask()
  const header = required.headers.get('payment-required')!
  assert.deepEqual(decodeHeader(header), decodePaymentRequiredHeader(header))
  assert.equal(encodeHeader(decodePaymentRequiredHeader(header)), header)
  assert.equal(parsePaymentRequired(decodePaymentRequiredHeader(header)).success, true)
  assert.deepEqual((await codeOf(required)).slice(0, 2), [402, 'payment_required'])
  const wallet = await openX402Wallet(money, '0.1')
  const paid = await wallet.paying(chat, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(question),
  })
  assert.equal(paid.status, 200)
  const { bazaar } = decodePaymentRequiredHeader(header).extensions as Record<string, DiscoveryExtension>
  assert.deepEqual(validateDiscoveryExtension(bazaar!), { valid: true })
  assert.deepEqual(validateDiscoveryExtensionSpec(bazaar! as never), { valid: true })
  // Clients send the extensions back with their payment: it has to fit into a head.
  assert.ok((await wallet.sign(await ask())).length < 6_000)
  const response = decodePaymentResponseHeader(paid.headers.get('payment-response')!)
  assert.deepEqual(
    [response.success, response.payer, response.network],
    [true, wallet.address, `eip155:${money.money.terms.chainId}`],
  )
  assert.equal(response.amount, (await balanceOf(wallet)).paid_atomic)
  // The receipt is there for anybody who has the id, without an account, and is signed shortly after.
  const id = paid.headers.get('x-router-request-id')!
  const receipt = await untilFits(
    async () => (await (await fetch(`${publicUrl}/api/receipts/${id}`)).json()) as Json,
    ({ payment }) => payment !== undefined,
  )
  assert.deepEqual([receipt.entry.payer, receipt.payment.issuer], [wallet.address, money.money.issuer])
  const checks = await verifyReceipt(receipt, receiptCrypto)
  assert.deepEqual(
    checks.filter(({ ok, pending }) => !ok || pending),
    [],
  )
})

test('a 402 writes nothing, for any caller and any number of requests', async () => {
  const before = await rows()
  const answers = await Promise.all(
    Array.from({ length: 50 }, () => ask({ 'idempotency-key': 'same', 'x-stainless-retry-count': '1' })),
  )
  assert.deepEqual([...new Set(answers.map(({ status }) => status))], [402])
  assert.equal((await fetch(`${base}/balance`)).status, 402)
  assert.equal(await rows(), before)
})

test('a flood of unpaid requests writes no row and ends at its rate; wallets with an account go on', async () => {
  const known = await openX402Wallet(money, '0.1')
  const pays = async () => ({ 'payment-signature': await known.sign(await ask()) })
  assert.equal(await statusOf(ask(await pays())), 200)
  const flood = { 'x-forwarded-for': '203.0.113.1' }
  const next = await pays()
  const before = await rows()
  // The clock of the rates stands still: 600 are answered, 50 take turns within a second, and the rest is refused.
  frozenMs = performance.now()
  try {
    const statuses: number[] = []
    const ends = Array.from({ length: 40 }, async () => {
      for (let count = 0; count < 15; count += 1) statuses.push(await statusOf(ask(flood)))
    })
    await Promise.all(ends)
    assert.deepEqual([statuses.length, ...new Set(statuses)], [600, 402])
    const late = await Promise.all(Array.from({ length: 60 }, () => statusOf(ask(flood))))
    assert.deepEqual(
      [402, 429].map((status) => late.filter((each) => each === status).length),
      [50, 10],
    )
    // Anybody can make wallets and sign in with them: above the rate that writes nothing either.
    const stranger = privateKeyToAccount(generatePrivateKey())
    const signedIn = [await signIn(stranger), await signIn(stranger)]
    const refused = await Promise.all([
      statusOf(ask({ ...flood, 'sign-in-with-x': signedIn[0]! })),
      statusOf(fetch(`${base}/balance`, { headers: { ...flood, 'sign-in-with-x': signedIn[1]! } })),
    ])
    assert.deepEqual(refused, [429, 429])
    assert.equal(await rows(), before)
    assert.equal(await statusOf(ask({ ...flood, ...next })), 200, 'a wallet with an account has a rate of its own')
    assert.equal(await statusOf(ask({ 'x-forwarded-for': '203.0.113.2' })), 402, 'another network')
    // What the wallet has paid with may be seen by others: showing it again counts against who shows it.
    assert.equal(await statusOf(ask({ ...flood, ...next })), 429)
  } finally {
    frozenMs = undefined
  }
})

test('a wallet pays at least 0.002 USDC when its credit does not cover a request', async () => {
  const wallet = await openX402Wallet(money, '0.1')
  const amounts: bigint[] = []
  const watching: typeof fetch = async (input, init) => {
    const answer = await fetch(input, init)
    if (answer.status === 402) amounts.push(askedFor(answer))
    return answer
  }
  const signedIn = wallet.signingIn(watching)
  const post = (path: string, send: typeof fetch) =>
    send(`${base}${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(question),
    })
  assert.equal(await statusOf(post('/chat/completions', wallet.netting())), 200)
  const quoted = async (headers: Record<string, string> = {}) => {
    const body = JSON.stringify(question)
    const answer = await fetch(`${base}/quote`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body,
    })
    return BigInt(((await answer.json()) as Json).amount_atomic)
  }
  const before = await balanceOf(wallet)
  const missing = (await quoted()) - BigInt(before.credit_atomic)
  assert.ok(missing > 0n && missing < 2_000n)
  assert.equal(await statusOf(post('/chat/completions', signedIn)), 402)
  assert.equal(amounts.at(-1), 2_000n)
  assert.equal(await quoted({ 'sign-in-with-x': await signIn(wallet.account) }), 2_000n)
  assert.equal(await statusOf(post('/chat/completions', wallet.netting())), 200)
  assert.equal(BigInt((await balanceOf(wallet)).paid_atomic), BigInt(before.paid_atomic) + 2_000n)
  // The amount that a 402 for a sign-in names, signed and sent to the wrong path.
  const signInOnly = await fetch(`${base}/balance`)
  assert.equal(askedFor(signInOnly), 0n)
  assert.deepEqual(await codeOf(await ask({ 'payment-signature': await wallet.sign(signInOnly) })), [
    402,
    'payment_invalid',
    'amount_too_small',
  ])
})

test('a payment that credit covers is not taken, and pays one request all the same', async () => {
  const wallet = await openX402Wallet(money, '0.1')
  const sign = async (body: object) => ({ 'payment-signature': await wallet.sign(await ask({}, body)) })
  assert.equal(await statusOf(ask(await sign(question))), 200)
  const before = await balanceOf(wallet)
  const small = { ...question, max_tokens: 8 }
  const paid = await sign(small)
  const statuses = await Promise.all(Array.from({ length: 8 }, () => statusOf(ask(paid, small))))
  assert.deepEqual(statuses.toSorted(), [200, ...Array(7).fill(402)])
  const after = await balanceOf(wallet)
  assert.equal(after.paid_atomic, before.paid_atomic)
  assert.ok(BigInt(after.charged_atomic) > BigInt(before.charged_atomic))
  assert.deepEqual(await codeOf(await ask(paid, small)), [402, 'payment_invalid', 'payment_used'])
  const served = await ask(await sign(small), small)
  const response = decodePaymentResponseHeader(served.headers.get('payment-response')!)
  assert.deepEqual([response.success, response.amount, response.transaction], [true, '0', ''])
  // Two payments for what credit covers once: the second is taken.
  const both = await Promise.all([await sign(question), await sign(question)].map((each) => statusOf(ask(each))))
  assert.deepEqual(both, [200, 200])
})

test('a wallet without credit pays for a large prompt, also right after a 402', async () => {
  const wallet = await openX402Wallet(money, '0.5')
  const send = (body: object) =>
    wallet.netting()(chat, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    })
  assert.equal((await send(question)).status, 200)
  assert.equal((await wallet.signingIn()(`${base}/refund`, { method: 'POST' })).status, 202)
  assert.equal((await balanceOf(wallet)).refundable_atomic, '0')
  const content = 'A penny saved is a penny earned. '.repeat(3_000)
  const large = { ...question, messages: [{ role: 'user', content }] }
  for (let time = 0; time < 2; time += 1) assert.equal((await send(large)).status, 200)
})

test('a key without money gets the ordinary 402 of /v1, and an x402 client shows its message', async () => {
  const account = await money.openAccount()
  const wallet = await openX402Wallet(money, '0')
  const request = wallet.paying(`${money.baseUrl}/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${account.apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify(question),
  })
  await assert.rejects(request, /This request may cost .* USDC.*Deposit/)
  const openai = new OpenAI({ baseURL: money.baseUrl, apiKey: account.apiKey, maxRetries: 0 })
  await assert.rejects(openai.chat.completions.create(question), /402.*USDC/)
})

test('one payment pays one request, whatever is sent with it, a hundred times at once', async () => {
  const wallet = await openX402Wallet(money, '0.1')
  const header = { 'payment-signature': await wallet.sign(await ask()) }
  const bodies = [question, { ...question, max_tokens: 8 }]
  const answers = await Promise.all(Array.from({ length: 100 }, (_, index) => ask(header, bodies[index % 2])))
  const statuses = answers.map(({ status }) => status)
  assert.equal(statuses.filter((status) => status === 200).length, 1)
  assert.deepEqual(
    [...new Set(statuses)].sort(),
    [200, 402, 503].filter((status) => statuses.includes(status)),
  )
  assert.deepEqual(await codeOf(await ask(header)), [402, 'payment_invalid', 'payment_used'])
  const {
    paid_atomic: paid,
    charged_atomic: charged,
    credit_atomic: credit,
    held_atomic: held,
  } = await balanceOf(wallet)
  assert.deepEqual([BigInt(paid) - BigInt(charged), held], [BigInt(credit), '0'])
  // With an id the repeated payment gets the answer that it paid for.
  const key = { 'payment-signature': await wallet.sign(await ask()), 'idempotency-key': 'twice' }
  const first = (await (await ask(key)).json()) as { id: string }
  const again = await ask(key)
  assert.deepEqual(
    [again.status, again.headers.get('idempotent-replayed'), ((await again.json()) as { id: string }).id],
    [200, 'true', first.id],
  )
  // Without an id a stranger who copied it from the chain gets nothing, also with the mark of an SDK's retry.
  const spent = { 'payment-signature': await wallet.sign(await ask()), 'x-stainless-retry-count': '0' }
  assert.equal(await statusOf(ask(spent)), 200)
  for (const mark of [{}, { 'idempotency-key': '' }]) {
    const copied = { ...spent, 'x-stainless-retry-count': '1', ...mark }
    assert.deepEqual(await codeOf(await ask(copied)), [402, 'payment_invalid', 'payment_used'])
  }
})

test('who has seen a used payment cannot write into the log of its wallet', async () => {
  const wallet = await openX402Wallet(money, '0.1')
  const header = { 'payment-signature': await wallet.sign(await ask()) }
  assert.equal((await ask(header)).status, 200)
  for (let time = 0; time < 10; time += 1)
    assert.deepEqual(await codeOf(await ask(header)), [402, 'payment_invalid', 'payment_used'])
  const next = { 'payment-signature': await wallet.sign(await ask()) }
  assert.equal((await ask(next)).status, 200)
  const { accountId } = await findWallet(database, wallet.address, 1)
  const logged = await database.query('select status from requests where account_id = $1', [accountId])
  assert.deepEqual(
    logged.filter(({ status }) => status === 'refused'),
    [],
  )
})

test('payments that were changed, are for another place, or are not covered are refused, and leave nothing', async () => {
  const wallet = await openX402Wallet(money, '0.1')
  const required = await ask()
  const change = (edit: (payload: PaymentPayload) => object) => wallet.sign(required.clone(), edit)
  const withAuthorization = (fields: Record<string, string>) => (payload: PaymentPayload) => ({
    ...payload,
    payload: { ...payload.payload, authorization: { ...payload.payload.authorization, ...fields } },
  })
  const withAccepted = (fields: object) => (payload: PaymentPayload) => ({
    ...payload,
    accepted: { ...payload.accepted, ...fields },
  })
  const cases: readonly (readonly [(payload: PaymentPayload) => object, string])[] = [
    [withAuthorization({ value: '1' }), 'amount_mismatch'],
    [
      (payload) => withAuthorization({ value: '3000' })(withAccepted({ amount: '3000' })(payload) as PaymentPayload),
      'invalid_signature',
    ],
    [withAuthorization({ to: wallet.address }), 'address_mismatch'],
    [withAccepted({ payTo: wallet.address }), 'address_mismatch'],
    [withAuthorization({ validBefore: '1000' }), 'authorization_expired'],
    [withAuthorization({ validAfter: '99999999999' }), 'authorization_not_yet_valid'],
    [withAuthorization({ nonce: `0x${'0'.repeat(64)}` }), 'invalid_signature'],
    [withAccepted({ network: 'eip155:1' }), 'unsupported_network'],
    [withAccepted({ asset: wallet.address }), 'unsupported_asset'],
    [
      (payload) => withAccepted({ extra: { ...payload.accepted.extra, verifyingContract: wallet.address } })(payload),
      'unsupported_domain',
    ],
    [withAccepted({ scheme: 'upto' }), 'unsupported_scheme'],
  ]
  const before = await rows()
  for (const [edit, reason] of cases) {
    assert.deepEqual(await codeOf(await ask({ 'payment-signature': await change(edit) })), [
      402,
      'payment_invalid',
      reason,
    ])
  }
  assert.equal((await ask({ 'payment-signature': 'bm8=' })).status, 400)
  const poor = await openX402Wallet(money, '0')
  assert.deepEqual(await codeOf(await ask({ 'payment-signature': await poor.sign(required.clone()) })), [
    402,
    'payment_invalid',
    'insufficient_balance',
  ])
  // What was signed for a cheaper request does not pay a dearer one, and nothing is taken for it.
  const cheap = await wallet.sign(await ask({}, { ...question, max_tokens: 8 }))
  const dearer = await ask({ 'payment-signature': cheap }, { ...question, max_tokens: 4_000 })
  assert.ok(askedFor(dearer) > 0n)
  assert.deepEqual((await codeOf(dearer)).slice(0, 2), [402, 'payment_required'])
  assert.equal(await rows(), before)
  assert.equal((await balanceOf(wallet)).paid_atomic, '0')
})

test('a sign-in proves an address once, here, for five minutes', async () => {
  const wallet = privateKeyToAccount(generatePrivateKey())
  const balance = (proof: string) => fetch(`${base}/balance`, { headers: { 'sign-in-with-x': proof } })
  const proof = await signIn(wallet)
  assert.equal(parseSIWxHeader(proof).address, wallet.address)
  const both = await Promise.all([balance(proof), balance(proof)])
  assert.deepEqual(both.map(({ status }) => status).sort(), [200, 401])
  const at = (ms: number) => new Date(Date.now() + ms).toISOString()
  for (const changes of [
    { domain: 'evil.example', uri: 'http://evil.example/x402/v1/balance' },
    { chainId: 'eip155:1' },
    { issuedAt: at(-600_000) },
    { issuedAt: at(-600_000), expirationTime: at(600_000) },
    { issuedAt: at(600_000), expirationTime: at(900_000) },
    { expirationTime: at(-1_000) },
    { statement: 'Pay me.' },
    { nonce: 'n'.repeat(200) },
  ]) {
    assert.deepEqual((await codeOf(await balance(await signIn(wallet, changes)))).slice(0, 2), [401, 'sign_in_failed'])
  }
  const stolen = {
    ...parseSIWxHeader(await signIn(wallet)),
    address: privateKeyToAccount(generatePrivateKey()).address,
  }
  const malformed = ['', 'e30=', 'bm8=', '%%%', encodeSIWxHeader(stolen), encodeHeader([proof]), 'A'.repeat(9_000)]
  for (const header of malformed) assert.equal((await balance(header)).status, 401, header.slice(0, 40))
  assert.equal((await balance('A'.repeat(20_000))).status, 400, 'more than the server reads of a head')
})

test('no wallet can see, spend or withdraw the credit of another', async () => {
  const owner = await openX402Wallet(money, '0.1')
  const thief = await openX402Wallet(money, '0.1')
  const paid = { 'payment-signature': await owner.sign(await ask()) }
  await (await ask(paid)).text()
  const { credit_atomic: credit, refundable_atomic: refundable } = await balanceOf(owner)
  assert.ok(BigInt(credit) > 0n)
  const post = (path: string, headers: Record<string, string>, body: object) =>
    fetch(`${base}${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: JSON.stringify(body),
    })
  const asThief = async () => ({ 'sign-in-with-x': await signIn(thief.account) })
  assert.equal((await balanceOf(thief)).credit_atomic, '0')
  assert.deepEqual(await codeOf(await post('/refund', await asThief(), {})), [400, 'invalid_value', undefined])
  const big = { ...question, max_tokens: 4_000 }
  const anonymous = askedFor(await ask({}, big))
  assert.equal(askedFor(await ask(await asThief(), big)), anonymous)
  // A payment that others have seen tells nothing: it is no sign-in, and it was used.
  const quoted = (await (await post('/quote', paid, big)).json()) as Json
  assert.deepEqual([quoted.credit_atomic, BigInt(quoted.amount_atomic)], ['0', anonymous])
  assert.deepEqual(await codeOf(await ask(paid, big)), [402, 'payment_invalid', 'payment_used'])
  assert.equal((await post('/refund', paid, {})).status, 402)
  // Beside a payment a sign-in counts for nothing: the request is the payer's.
  const mixed = { 'payment-signature': await thief.sign(await ask()), 'sign-in-with-x': await signIn(owner.account) }
  assert.equal((await ask(mixed)).status, 200)
  assert.equal((await balanceOf(owner)).credit_atomic, credit)
  // The id of a refund belongs to its wallet.
  const id = randomUUID()
  const refund = await post('/refund', { 'sign-in-with-x': await signIn(owner.account) }, { id })
  assert.deepEqual([refund.status, ((await refund.json()) as Json).recipient], [202, owner.address])
  const again = (await (await post('/refund', await asThief(), { id })).json()) as Json
  assert.notEqual(again.recipient, owner.address)
  assert.equal((await balanceOf(owner)).refunded_atomic, refundable)
})

test('a closed account takes no payment and pays its credit back; reopened, its wallet pays again', async () => {
  const wallet = await openX402Wallet(money, '0.1')
  const buy = async () => ask({ 'payment-signature': await wallet.sign(await ask()) })
  await (await buy()).text()
  const client = new DashboardClient({ origin: publicUrl })
  await client.post('/api/auth/wallet', await signedMessage(client, wallet.account))
  assert.deepEqual(await client.refusal('DELETE', '/api/account'), [409, 'account_not_closable'])
  const refund = () => wallet.signingIn()(`${base}/refund`, { method: 'POST' })
  assert.equal((await refund()).status, 202)
  await untilFits(
    () => balanceOf(wallet),
    ({ refunds }) => refunds[0]?.state === 'confirmed',
  )
  await client.delete('/api/account')
  const left = await gatewayOf(money, wallet.address)
  const refused = (await (await buy()).json()) as Answer
  assert.match(refused.error!.message, /account of this wallet was closed.*ask the operator.*Nothing was paid/)
  assert.equal(await gatewayOf(money, wallet.address), left)
  const known = await findWallet(database, wallet.address, 1)
  const token = await createLoginToken(database, known, 600)
  const { account } = await new DashboardClient({ origin: publicUrl }).post('/api/auth/link', { token })
  assert.deepEqual(
    [account.x402_wallet, account.name],
    [wallet.address, `Wallet ${wallet.address.slice(0, 6)}…${wallet.address.slice(-4)}`],
  )
  const paid = await buy()
  assert.equal(paid.status, 200)
  await paid.text()
  const {
    paid_atomic: value,
    charged_atomic: charged,
    credit_atomic: credit,
    refunded_atomic: back,
  } = await balanceOf(wallet)
  assert.equal(BigInt(value), BigInt(charged) + BigInt(credit) + BigInt(back))
})

test('an upstream that fails leaves the payment as credit, and the answer says so', async () => {
  const wallet = await openX402Wallet(money, '0.1')
  const failing = { ...question, messages: [{ role: 'user', content: 'Hello [sandbox:error 500]' }] }
  const answer = await ask({ 'payment-signature': await wallet.sign(await ask({}, failing)) }, failing)
  const { error } = (await answer.json()) as Answer
  const { credit_atomic: credit, paid_atomic: paid } = await balanceOf(wallet)
  assert.deepEqual([answer.status, error!.code, error!.paid_atomic, credit], [502, 'upstream_error', paid, paid])
  assert.match(error!.payment!, /credit of the wallet/)
  assert.equal(decodePaymentResponseHeader(answer.headers.get('payment-response')!).success, true)
})

test('a client that leaves its stream pays for what was produced; the rest is credit in its next 402', async () => {
  const wallet = await openX402Wallet(money, '0.1')
  const content = 'Hello [sandbox:stall-after 30]'
  const stalling = { ...question, stream: true, reasoning_effort: 'none', messages: [{ role: 'user', content }] }
  const leaving = new AbortController()
  const answer = await fetch(chat, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      'payment-signature': await wallet.sign(await ask({}, stalling)),
    },
    body: JSON.stringify(stalling),
    signal: leaving.signal,
  })
  const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader()
  for (let text = ''; !/"content":"[^"]/.test(text); ) text += (await reader.read()).value ?? ''
  leaving.abort()
  const left = await untilFits(
    () => balanceOf(wallet),
    ({ held_atomic: held, charged_atomic: charged }) => held === '0' && charged !== '0',
  )
  const [paid, charged, credit] = [left.paid_atomic, left.charged_atomic, left.credit_atomic].map(BigInt)
  assert.ok(charged! > 0n && charged! < paid!)
  assert.equal(credit, paid! - charged!)
  const dearer = { ...question, max_tokens: 4_000 }
  const next = await wallet.signingIn()(chat, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(dearer),
  })
  assert.equal(askedFor(next), askedFor(await ask({}, dearer)) - credit!)
})

test('a payment with an identifier gets its answer again with the same body, and pays nothing else', async () => {
  const wallet = await openX402Wallet(money, '0.1')
  const identified = appendPaymentIdentifierToExtensions({
    'payment-identifier': declarePaymentIdentifierExtension(),
  })
  const signed = async () => ({
    'payment-signature': await wallet.sign(await ask(), (payload) => ({ ...payload, extensions: identified })),
  })
  const first = await ask(await signed())
  const { id } = (await first.json()) as { id: string }
  // A client that lost the answer signs a new payment: the identifier finds the request, and the new one is not taken.
  const again = await ask(await signed())
  assert.deepEqual(
    [again.status, again.headers.get('idempotent-replayed'), ((await again.json()) as { id: string }).id],
    [200, 'true', id],
  )
  const other = await ask(await signed(), { ...question, max_tokens: 63 })
  assert.deepEqual((await codeOf(other)).slice(0, 2), [422, 'idempotency_mismatch'])
  const payments = await database.query("select from transfers where kind = 'x402' and counterparty = $1", [
    wallet.address,
  ])
  assert.equal(payments.length, 1)
})

test('refunds that race with requests and with each other take what is left, once', async () => {
  const wallet = await openX402Wallet(money, '0.1')
  const ample = { ...question, max_tokens: 8_000 }
  await (await ask({ 'payment-signature': await wallet.sign(await ask({}, ample)) }, ample)).text()
  const small = { ...question, max_tokens: 8 }
  const post = (path: string, body: object) =>
    wallet.signingIn()(`${base}${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    })
  const orders = Array.from({ length: 12 }, (_, index) =>
    index % 3 === 0 ? post('/refund', {}) : post('/chat/completions', small),
  )
  const answers = await Promise.all(orders)
  const bodies = (await Promise.all(answers.map((answer) => answer.json()))) as Json[]
  assert.ok(answers.every(({ status }) => status < 500))
  const back = bodies.reduce((sum, { object, amount_atomic: amount }) => {
    return object === 'x402.refund' ? sum + BigInt(amount) : sum
  }, 0n)
  const end = await untilFits(
    () => balanceOf(wallet),
    ({ held_atomic: held }) => held === '0',
  )
  assert.equal(BigInt(end.refunded_atomic), back)
  assert.equal(BigInt(end.paid_atomic), BigInt(end.charged_atomic) + BigInt(end.credit_atomic) + back)
})

test('a wallet that signs in to the dashboard finds its credit, its log and a way back for its money', async () => {
  const wallet = await openX402Wallet(money, '0.1')
  const ample = { ...question, max_tokens: 4_000 }
  const paid = await ask({ 'payment-signature': await wallet.sign(await ask({}, ample)) }, ample)
  const id = paid.headers.get('x-router-request-id')!
  const { credit_atomic: credit, paid_atomic: value } = await balanceOf(wallet)
  const client = new DashboardClient({ origin: publicUrl })
  const { account } = await client.post('/api/auth/wallet', await signedMessage(client, wallet.account))
  assert.deepEqual([account.x402_wallet, account.deposit_address, account.owner_address], [wallet.address, null, null])
  const balance = await client.get('/api/balance')
  assert.deepEqual([balance.available_atomic, balance.deposited_atomic], [credit, value])
  assert.deepEqual(
    (await client.get('/api/requests')).data.map(({ id: seen }: Json) => seen),
    [id],
  )
  const deposits = await client.get('/api/deposits')
  assert.deepEqual(
    [deposits.deposit_address, deposits.data.map(({ source, amount_atomic }: Json) => [source, amount_atomic])],
    [null, [['x402', value]]],
  )
  // A key spends the credit, and nothing beyond it.
  const { secret } = await client.post('/api/keys', { name: 'agent' })
  const withKey = (maxTokens: number) =>
    fetch(`${money.baseUrl}/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
      body: JSON.stringify({ ...question, max_tokens: maxTokens }),
    })
  assert.equal((await withKey(8)).status, 200)
  const refused = (await (await withKey(8_000)).json()) as Answer
  assert.match(refused.error!.message, new RegExp(`over x402 from ${wallet.address}`))
  assert.doesNotMatch(refused.error!.message, /Deposit USDC/)
  // The wallet's own key is the wallet.
  const own = (await client.get('/api/keys')).data.find(({ is_x402 }: Json) => is_x402)
  assert.deepEqual(await client.refusal('POST', `/api/keys/${own.id}/rotate`, {}), [400, 'invalid_value'])
  assert.deepEqual(await client.refusal('DELETE', `/api/keys/${own.id}`), [400, 'invalid_value'])
  await client.patch(`/api/keys/${own.id}`, { disabled: true })
  const payments = () =>
    database.query("select nonce from transfers where kind = 'x402' and counterparty = $1", [wallet.address])
  const before = await payments()
  const unpaid = await ask({ 'payment-signature': await wallet.sign(await ask()) })
  assert.deepEqual((await codeOf(unpaid)).slice(0, 2), [401, 'api_key_revoked'])
  assert.deepEqual(await payments(), before)
  await client.patch(`/api/keys/${own.id}`, { disabled: false })
  const recipient = wallet.account.address
  const key = { 'idempotency-key': 'not possible' }
  assert.deepEqual(await client.refusal('POST', '/api/withdrawals', { amount: '0.01', recipient }, key), [
    400,
    'invalid_value',
  ])
  assert.deepEqual(await client.refusal('PUT', '/api/owner', { address: recipient }), [400, 'invalid_value'])
  const dust = await client.refusal('POST', '/api/refunds', { amount: '0.000001' }, key)
  assert.deepEqual(dust, [400, 'invalid_value'])
  // Pressed twice, in two windows, and over x402 besides: it is paid once.
  const left = (await client.get('/api/balance')).refundable_atomic
  const payBack = (form: string) => client.send('POST', '/api/refunds', {}, { 'idempotency-key': form })
  const answers = await Promise.all([
    payBack('first window'),
    payBack('first window'),
    payBack('second window'),
    wallet.signingIn()(`${base}/refund`, { method: 'POST' }),
  ])
  const bodies = (await Promise.all(answers.map((answer) => answer.json()))) as Json[]
  const paidBack = new Map(bodies.filter(({ error }) => error === undefined).map((refund) => [refund.id, refund]))
  assert.deepEqual(
    [...paidBack.values()].map(({ amount_atomic }) => amount_atomic),
    [left],
  )
  const [listed, ...others] = (await client.get('/api/withdrawals')).data
  assert.deepEqual([listed.is_refund, listed.recipient, others], [true, wallet.address, []])
  assert.equal((await client.get('/api/balance')).refundable_atomic, '0')
})

test('a machine that does not settle serves the same wallets, and its payments are settled', async (t) => {
  const model = await startModelServer({ host: '127.0.0.1', port: 0, tokensPerSecond: 0 })
  atEnd(t, () => model.close())
  const { rpcUrl, gatewayUrl, gatewayToken, terms } = money.money
  const dataDir = mkdtempSync(join(tmpdir(), 'penny-web-'))
  atEnd(t, () => rmSync(dataDir, { recursive: true, force: true }))
  const config = readConfig({
    ROLES: 'web',
    PORT: '0',
    WEB_PROCESSES: '1',
    DATA_DIR: dataDir,
    DATABASE_URL: money.databaseUrl,
    UPSTREAM_BASE_URL: model.url,
    LOG_LEVEL: 'silent',
    LEDGER_PARTITIONS: String(partitions),
    SEARCH_PROVIDER: 'none',
    CHAIN_RPC_URL: rpcUrl,
    GATEWAY_URL: gatewayUrl,
    GATEWAY_TOKEN: gatewayToken,
    USDC_ADDRESS: terms.usdc.address,
    GATEWAY_WALLET_ADDRESS: terms.gatewayWallet,
  })
  const service = await startTestedService(config)
  atEnd(t, () => service.stop())
  const there = `${service.publicUrl}/x402/v1`
  const wallet = await openX402Wallet(money, '0.1')
  const openai = new OpenAI({ baseURL: there, apiKey: 'none', fetch: wallet.netting(), maxRetries: 0 })
  const { data, response } = await openai.chat.completions.create(question).withResponse()
  assert.match(data.choices[0]!.message.content!, /sandbox model/)
  const receipt = `/api/receipts/${response.headers.get('x-router-request-id')}`
  const receipts = [service.publicUrl, publicUrl].map(
    async (url) => (await (await fetch(`${url}${receipt}`)).json()) as Json,
  )
  const [here, settling] = await Promise.all(receipts)
  assert.deepEqual([here!.entry, here!.domain], [settling!.entry, settling!.domain])
  const {
    paid_atomic: paid,
    charged_atomic: charged,
    credit_atomic: credit,
    refundable_atomic: refundable,
  } = await balanceOf(wallet)
  assert.equal(BigInt(paid), BigInt(charged) + BigInt(credit))
  assert.ok(BigInt(refundable) > 0n)
  assert.equal((await wallet.signingIn()(`${there}/refund`, { method: 'POST' })).status, 202)
  await untilFits(
    () => gatewayOf(money, wallet.address),
    (left) => left === 100_000n - BigInt(paid) + BigInt(refundable),
  )
})
