import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { getAddress, type Hex, hashStruct, recoverTypedDataAddress } from 'viem'
import { format } from '../../src/money/usdc.ts'
import type { Address } from '../../src/signer/address.ts'
import type { SigningTerms } from '../../src/signer/signing-terms.ts'
import { atEnd, type Ending } from './at-end.ts'
import { burnIntentTypes, transferFields } from './circle-types.ts'

/** Every reason that Circle's documents name for refusing a payment. */
export const errorReasons = [
  'unsupported_scheme',
  'unsupported_network',
  'unsupported_asset',
  'invalid_payload',
  'address_mismatch',
  'amount_mismatch',
  'invalid_signature',
  'authorization_not_yet_valid',
  'authorization_expired',
  'authorization_validity_too_short',
  'self_transfer',
  'insufficient_balance',
  'nonce_already_used',
  'unsupported_domain',
  'wallet_not_found',
] as const
export type ErrorReason = (typeof errorReasons)[number]

/** What can go wrong with one call. Those in `afterFaults` have done their work by then. */
export const beforeFaults = ['refused connection', 'too many requests', 'unavailable'] as const
export const afterFaults = ['silence', 'hung up', 'empty body', 'half a reply', 'error after', 'error page'] as const
export type CallFault = (typeof beforeFaults)[number] | (typeof afterFaults)[number]

export type StubTransfer = {
  readonly id: string
  readonly from: Address
  readonly to: Address
  readonly amount: bigint
  readonly nonce: Hex
  status: 'received' | 'batched' | 'confirmed' | 'completed' | 'failed'
}

export type StubWithdrawal = {
  readonly id: string
  readonly spec: Hex
  readonly depositor: Address
  readonly recipient: Address
  readonly value: bigint
  readonly fee: bigint
  status: 'pending' | 'confirmed' | 'failed'
}

type Answer = { readonly status: number; readonly body: unknown }
type Faults = (path: string) => CallFault | undefined
// biome-ignore lint/suspicious/noExplicitAny: what a client sends, checked below
type Body = any

const weekSeconds = 7 * 86_400

/**
 * Circle's gateway as its documents describe it, without a chain: it takes payments by (from, nonce), locks what they are
 * worth, batches when told to, and pays withdrawals out once per burn intent. Every call can be made to fail, before or
 * after it did its work.
 */
export class CircleGateway {
  url = ''
  readonly transfers = new Map<string, StubTransfer>()
  readonly withdrawals = new Map<string, StubWithdrawal>()
  /** What recipients of withdrawals have been paid. */
  readonly paid = new Map<Address, bigint>()
  /** Paths in the order of their arrival. */
  readonly calls: string[] = []
  faults: Faults = () => undefined
  /** The next payments are refused for these reasons, whatever they are. */
  readonly refusals: ErrorReason[] = []
  /** The next withdrawals are refused with these words. */
  readonly withdrawalRefusals: string[] = []
  /** What it keeps of a withdrawal on top of what it pays, and what it says beforehand that it may keep. */
  fee = 0n
  feeEstimate = 0n
  /** Whether its answer about a withdrawal contains the fee. */
  tellsFees = true
  readonly #terms: SigningTerms
  readonly #available = new Map<Address, bigint>()

  constructor(terms: SigningTerms) {
    this.#terms = terms
  }

  deposit(depositor: Address, amount: bigint): void {
    this.#available.set(depositor, this.balance(depositor) + amount)
  }

  /** What the depositor can spend: all that is not promised. */
  balance(depositor: Address): bigint {
    return this.#available.get(depositor) ?? 0n
  }

  /** Settles what was received. */
  batch(): void {
    for (const transfer of this.transfers.values()) {
      if (transfer.status !== 'received') continue
      transfer.status = 'completed'
      this.deposit(transfer.to, transfer.amount)
    }
  }

  /** A payment that was taken fails after all: what it had locked is free again. */
  fail(id: string): void {
    const transfer = this.transfers.get(id)!
    transfer.status = 'failed'
    this.deposit(transfer.from, transfer.amount)
  }

  /** As if it had never been taken. */
  lose(id: string): void {
    const { from, amount } = this.transfers.get(id)!
    this.transfers.delete(id)
    this.deposit(from, amount)
  }

  payOut(): void {
    for (const withdrawal of this.withdrawals.values()) {
      if (withdrawal.status !== 'pending') continue
      withdrawal.status = 'confirmed'
      this.paid.set(withdrawal.recipient, (this.paid.get(withdrawal.recipient) ?? 0n) + withdrawal.value)
    }
  }

  failWithdrawals(): void {
    for (const withdrawal of this.withdrawals.values()) {
      if (withdrawal.status !== 'pending') continue
      withdrawal.status = 'failed'
      this.deposit(withdrawal.depositor, withdrawal.value + withdrawal.fee)
    }
  }

  async answer(method: string, url: URL, body: Body): Promise<Answer> {
    const [, , first, second, id] = url.pathname.split('/')
    if (method === 'POST' && url.pathname === '/v1/x402/settle') return this.#settle(body)
    if (method === 'GET' && second === 'transfers') return id === undefined ? this.#search(url) : this.#transfer(id)
    if (method === 'POST' && first === 'balances') return this.#balances(body)
    if (method === 'POST' && first === 'estimate') return this.#estimate(body)
    if (method === 'POST' && first === 'transfer') return this.#withdraw(body)
    if (method === 'GET' && first === 'transfer') return this.#withdrawal(second!)
    return { status: 404, body: { code: 404, message: 'Not found' } }
  }

  async #settle(body: Body): Promise<Answer> {
    const network = `eip155:${this.#terms.chainId}`
    const reason = this.refusals.shift() ?? (await this.#refusalOf(body))
    if (reason !== undefined) {
      return { status: 400, body: { success: false, errorReason: reason, transaction: '', network } }
    }
    const { from, to, value, nonce } = body.paymentPayload.payload.authorization
    const transfer: StubTransfer = {
      id: randomUUID(),
      from: from.toLowerCase(),
      to: to.toLowerCase(),
      amount: BigInt(value),
      nonce: nonce.toLowerCase(),
      status: 'received',
    }
    this.transfers.set(transfer.id, transfer)
    this.deposit(transfer.from, -transfer.amount)
    return { status: 200, body: { success: true, transaction: transfer.id, network, payer: from } }
  }

  async #refusalOf({ paymentPayload, paymentRequirements: required }: Body): Promise<ErrorReason | undefined> {
    const { chainId, usdc, gatewayWallet } = this.#terms
    const { authorization, signature } = paymentPayload.payload
    const message = { ...authorization, value: BigInt(authorization.value) }
    if (JSON.stringify(paymentPayload.accepted) !== JSON.stringify(required)) return 'invalid_payload'
    if (required.scheme !== 'exact') return 'unsupported_scheme'
    if (required.network !== `eip155:${chainId}`) return 'unsupported_network'
    if (required.asset !== getAddress(usdc.address)) return 'unsupported_asset'
    if (required.payTo !== message.to) return 'address_mismatch'
    if (required.amount !== authorization.value) return 'amount_mismatch'
    if (message.from === message.to) return 'self_transfer'
    const now = Date.now() / 1000
    if (Number(message.validAfter) >= now) return 'authorization_not_yet_valid'
    if (Number(message.validBefore) <= now) return 'authorization_expired'
    if (Number(message.validBefore) < now + weekSeconds) return 'authorization_validity_too_short'
    const signer = await recoverTypedDataAddress({
      domain: { name: 'GatewayWalletBatched', version: '1', chainId, verifyingContract: gatewayWallet },
      types: { TransferWithAuthorization: transferFields },
      primaryType: 'TransferWithAuthorization',
      message: { ...message, validAfter: BigInt(message.validAfter), validBefore: BigInt(message.validBefore) },
      signature,
    }).catch(() => undefined)
    if (signer !== message.from) return 'invalid_signature'
    if (this.#find(message.from, message.nonce) !== undefined) return 'nonce_already_used'
    return this.balance(message.from.toLowerCase()) < message.value ? 'insufficient_balance' : undefined
  }

  #find(from: string, nonce: string): StubTransfer | undefined {
    return [...this.transfers.values()].find((transfer) => {
      return transfer.from === from.toLowerCase() && transfer.nonce === nonce.toLowerCase()
    })
  }

  #search({ searchParams }: URL): Answer {
    const [from, to, nonce, after] = ['from', 'to', 'nonce', 'pageAfter'].map((name) =>
      searchParams.get(name)?.toLowerCase(),
    )
    const found = [...this.transfers.values()]
      .filter((transfer) => from === undefined || transfer.from === from)
      .filter((transfer) => to === undefined || transfer.to === to)
      .filter((transfer) => nonce === undefined || transfer.nonce === nonce)
      .toReversed()
    const start = found.findIndex(({ id }) => id === after) + 1
    const page = found.slice(start, start + Number(searchParams.get('pageSize')))
    return { status: 200, body: { transfers: page.map((transfer) => this.#render(transfer)) } }
  }

  #transfer(id: string): Answer {
    const transfer = this.transfers.get(id)
    if (transfer === undefined) return { status: 404, body: { code: 404, message: 'Transfer not found' } }
    return { status: 200, body: this.#render(transfer) }
  }

  #render({ id, status, from, to, amount, nonce }: StubTransfer) {
    const network = `eip155:${this.#terms.chainId}`
    const instant = new Date(0).toISOString()
    return {
      id,
      status,
      token: 'USDC',
      sendingNetwork: network,
      recipientNetwork: network,
      fromAddress: getAddress(from),
      toAddress: getAddress(to),
      amount: amount.toString(),
      nonce,
      txHash: status === 'completed' ? `0x${'ab'.repeat(32)}` : null,
      createdAt: instant,
      updatedAt: instant,
    }
  }

  #balances({ sources }: Body): Answer {
    const balances = sources.map(({ depositor, domain }: Body) => {
      return { domain, depositor, balance: format(this.balance(depositor.toLowerCase())) }
    })
    return { status: 200, body: { token: 'USDC', balances } }
  }

  async #withdraw([{ burnIntent, signature }]: Body): Promise<Answer> {
    const refuse = (message: string) => ({ status: 400, body: { code: 400, message } })
    const { spec } = burnIntent
    const depositor: Address = `0x${spec.sourceDepositor.slice(26)}` as Address
    const signer = await recoverTypedDataAddress({
      domain: { name: 'GatewayWallet', version: '1' },
      types: burnIntentTypes,
      primaryType: 'BurnIntent',
      message: burnIntent,
      signature,
    }).catch(() => undefined)
    if (signer?.toLowerCase() !== depositor) return refuse('Invalid signature')
    const hash = hashStruct({ data: spec, primaryType: 'TransferSpec', types: burnIntentTypes })
    const known = [...this.withdrawals.values()].find((withdrawal) => withdrawal.spec === hash)
    if (known !== undefined) return { status: 201, body: { transferId: known.id } }
    const refusal = this.withdrawalRefusals.shift()
    if (refusal !== undefined) return refuse(refusal)
    const value = BigInt(spec.value)
    const maxFee = BigInt(burnIntent.maxFee)
    if (maxFee < this.fee) return refuse('Insufficient max fee')
    if (this.balance(depositor) < value + maxFee) return refuse('Insufficient balance for depositor')
    const withdrawal: StubWithdrawal = {
      id: randomUUID(),
      spec: hash,
      depositor,
      recipient: `0x${spec.destinationRecipient.slice(26)}` as Address,
      value,
      fee: this.fee,
      status: 'pending',
    }
    this.withdrawals.set(withdrawal.id, withdrawal)
    this.deposit(depositor, -value - this.fee)
    return { status: 201, body: { transferId: withdrawal.id, attestation: '0x', signature: '0x' } }
  }

  #estimate([burnIntent]: Body): Answer {
    const intent = { ...burnIntent, maxFee: this.feeEstimate.toString() }
    return { status: 200, body: { body: [{ burnIntent: intent }], fees: this.#fees(this.feeEstimate) } }
  }

  /** Half of the fee is for gas, the rest for the party that pays out. */
  #fees(fee: bigint) {
    const baseFee = fee / 2n
    const perIntent = [{ domain: this.#terms.gatewayDomain, baseFee: format(baseFee), transferFee: '0' }]
    return { total: format(fee), token: 'USDC', perIntent, forwardingFee: format(fee - baseFee) }
  }

  #withdrawal(id: string): Answer {
    const withdrawal = this.withdrawals.get(id)
    if (withdrawal === undefined) return { status: 404, body: { code: 404, message: 'Transfer not found' } }
    const { status, fee } = withdrawal
    const forwardingDetails = {
      forwardingEnabled: true,
      ...(status === 'failed' ? { failureReason: 'MINT_FAILED' } : {}),
    }
    const transactionHash = status === 'confirmed' ? `0x${'cd'.repeat(32)}` : null
    const fees = this.tellsFees ? this.#fees(fee) : undefined
    return { status: 200, body: { id, status, transactionHash, forwardingDetails, fees } }
  }
}

export async function startCircleGateway(test: Ending, terms: SigningTerms): Promise<CircleGateway> {
  const gateway = new CircleGateway(terms)
  const server = createServer((request, response) => void serve(gateway, request, response))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  atEnd(test, () => {
    server.close()
    server.closeAllConnections()
  })
  gateway.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  return gateway
}

async function serve(gateway: CircleGateway, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const url = new URL(request.url!, 'http://stub')
  const chunks: Buffer[] = []
  for await (const chunk of request) chunks.push(chunk)
  gateway.calls.push(`${request.method} ${url.pathname}`)
  const fault = gateway.faults(`${request.method} ${url.pathname}`)
  if (fault === 'refused connection') return void request.socket.destroy()
  if (fault === 'too many requests') return send(response, 429, JSON.stringify({ code: 429, message: 'Slow down' }))
  if (fault === 'unavailable') return send(response, 503, JSON.stringify({ code: 503, message: 'Later' }))
  const body = chunks.length === 0 ? undefined : JSON.parse(Buffer.concat(chunks).toString())
  const answer = await gateway.answer(request.method!, url, body)
  const text = JSON.stringify(answer.body)
  switch (fault) {
    case undefined:
      return send(response, answer.status, text)
    case 'silence':
      return
    case 'hung up':
      return void request.socket.destroy()
    case 'empty body':
      return send(response, 200, '')
    case 'half a reply':
      response.writeHead(answer.status, { 'content-type': 'application/json', 'content-length': text.length })
      response.write(text.slice(0, text.length / 2), () => request.socket.destroy())
      return
    case 'error after':
      return send(response, 500, JSON.stringify({ code: 500, message: 'Internal error' }))
    case 'error page':
      return send(response, 404, '<html>Not found</html>')
  }
}

function send(response: ServerResponse, status: number, text: string): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(text)
}
