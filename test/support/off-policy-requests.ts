import fc from 'fast-check'
import { encodeRequest, type SigningRequest } from '../../src/signer/signing-request.ts'
import { gatewayDomain, payOutMax, windowSeconds } from '../../src/signer/signing-terms.ts'
import { burnIntentTypes } from './circle-types.ts'
import { limits, terms, transferRequest, withdrawalRequest } from './signing.ts'

// Requests of which none may ever be signed: honest ones in which at least one thing is not as it must be, and plain
// rubbish. Each change alone is against the policy, so any set of them is.

type Json = Record<string, unknown>
type Change = { readonly name: string; readonly apply: (request: Json) => void }

const accounts = Array.from({ length: 8 }, (_, index) => `0000000${index}-0000-7000-8000-000000000000`)
const yearSeconds = 365 * 24 * 60 * 60

const hex = (bytes: number) => fc.uint8Array({ minLength: bytes, maxLength: bytes }).map(toHex)
const otherAddress = hex(20)
const word = hex(32)

/** No number of this kind is written so. */
const wrongNumber = fc.oneof(
  fc.constantFrom<unknown>('', '-1', '+1', ' 1', '1 ', '01', '1.5', '1e3', '0x10', '1n', 'NaN', '١', '9'.repeat(79)),
  fc.constantFrom<unknown>(5, -5, 1.5, null, true, [], ['1'], {}, '1'.repeat(10_000)),
)

const wrongInteger = fc.constantFrom<unknown>(-1, 1.5, '0', '', null, true, [], {}, 2 ** 53, 1e300)

const wrongWord = fc.oneof(
  word,
  word.map((value) => value.toUpperCase()),
  fc.constantFrom<unknown>(
    '',
    '0x',
    null,
    7,
    [],
    {},
    `0x${'0'.repeat(63)}`,
    `0x${'0'.repeat(66)}`,
    `0x${'g'.repeat(64)}`,
  ),
)

const wrongAddress = fc.oneof(
  otherAddress,
  fc.constantFrom<unknown>('', '0x', null, 7, [], {}, `0x${'0'.repeat(40)}`, `0x${'0'.repeat(64)}`, 'vitalik.eth'),
)

const misfit = fc.oneof(fc.constantFrom<unknown>(null, 7, '', [], {}), fc.jsonValue({ maxDepth: 2 }))

const anyChange: fc.Arbitrary<Change> = fc.oneof(
  set(
    'operation',
    fc.oneof(fc.string(), fc.constantFrom('sign', 'raw', 'hash', 'personal_sign', 'eth_sign', 'toString')),
  ),
  set('operation', misfit),
  addField(fc.oneof(fc.constantFrom('__proto__', 'constructor', 'digest', 'to', 'privateKey'), fc.string()), misfit),
)

const transferChange: fc.Arbitrary<Change> = fc.oneof(
  anyChange,
  fc.constantFrom('account', 'epoch', 'sequence', 'domain', 'message').map(remove),
  fc.constantFrom('from', 'to', 'value', 'validAfter', 'validBefore', 'nonce').map((name) => remove(`message.${name}`)),
  set('account', fc.uuid()),
  set('account', misfit),
  set('epoch', fc.oneof(fc.integer({ min: 1, max: 2 ** 32 - 1 }), wrongInteger)),
  set('sequence', fc.oneof(fc.bigInt(2n ** 40n, 2n ** 80n).map(String), wrongNumber)),
  set('domain', wrongWord),
  set(
    'domain',
    fc.integer({ min: 1, max: 5_000_000 }).map((chainId) => gatewayDomain({ ...terms, chainId })),
  ),
  set('message', misfit),
  set('message.from', wrongAddress),
  set('message.to', wrongAddress),
  set('message.to', fc.constantFrom(terms.usdc.address, terms.gatewayMinter)),
  set('message.value', fc.oneof(fc.constant('0'), fc.bigInt(2n ** 63n, 2n ** 256n).map(String), wrongNumber)),
  set('message.nonce', wrongWord),
  // Another length, in the future, or long over.
  set('message.validAfter', fc.oneof(fc.integer({ min: 0, max: 1_000_000_000 }), wrongInteger)),
  set('message.validBefore', fc.oneof(fc.integer({ min: 3_000_000_000, max: 9_000_000_000 }), wrongInteger)),
  fc
    .oneof(fc.integer({ min: 1_000, max: yearSeconds }), fc.integer({ min: -yearSeconds, max: -windowSeconds }))
    .map(shift),
  addMessageField(fc.string(), misfit),
)

const authorizationChange = fc.oneof(
  transferChange,
  set('operation', fc.constantFrom('return', 'deposit')),
  set('message.value', fc.bigInt(limits.authorizationMax + 1n, 2n ** 64n).map(String)),
)
const returnChange = fc.oneof(
  transferChange,
  set('operation', fc.constantFrom('authorization', 'deposit')),
  set('message.value', fc.bigInt(payOutMax + 1n, 2n ** 64n).map(String)),
)
const depositChange = fc.oneof(transferChange, set('operation', fc.constantFrom('authorization', 'return')))

const specWords = burnIntentTypes.TransferSpec.filter(({ type }) => type === 'bytes32').map(({ name }) => name)

const withdrawalChange: fc.Arbitrary<Change> = fc.oneof(
  anyChange,
  fc.constantFrom('account', 'withdrawal', 'intent', 'intent.maxFee', 'intent.spec', 'intent.spec.salt').map(remove),
  set('operation', fc.constantFrom('payout', 'authorization')),
  set('account', fc.uuid()),
  set('withdrawal', fc.oneof(fc.uuid(), misfit)),
  set('intent', misfit),
  set('intent.spec', misfit),
  set('intent.maxFee', fc.oneof(fc.bigInt(limits.withdrawalFeeMax + 1n, 2n ** 256n - 1n).map(String), wrongNumber)),
  set('intent.maxBlockHeight', fc.oneof(fc.bigInt(0n, 2n ** 256n - 2n).map(String), wrongNumber)),
  set('intent.spec.version', fc.oneof(fc.integer({ min: 2, max: 2 ** 32 }), fc.constant(0), wrongInteger)),
  set('intent.spec.sourceDomain', fc.oneof(fc.integer({ min: 27, max: 2 ** 32 }), fc.constant(0), wrongInteger)),
  set('intent.spec.destinationDomain', fc.oneof(fc.integer({ min: 27, max: 2 ** 32 }), fc.constant(0), wrongInteger)),
  set('intent.spec.value', fc.oneof(fc.constant('0'), fc.bigInt(2n ** 63n, 2n ** 256n).map(String), wrongNumber)),
  set('intent.spec.hookData', fc.oneof(word, fc.constantFrom<unknown>('', '0x00', null, [], {}))),
  fc.constantFrom(...specWords).chain((name) => set(`intent.spec.${name}`, wrongWord)),
)

/** One request against the policy, as JSON text. The accounts have `ownerAddress` registered. */
export const offPolicyRequest: fc.Arbitrary<string> = fc.oneof(
  { weight: 6, arbitrary: changed(transfer('authorization'), authorizationChange) },
  { weight: 2, arbitrary: changed(transfer('return'), returnChange) },
  { weight: 2, arbitrary: changed(transfer('deposit'), depositChange) },
  { weight: 3, arbitrary: changed(withdrawal(), withdrawalChange) },
  { weight: 1, arbitrary: fc.json() },
  { weight: 1, arbitrary: fc.record({ operation: fc.string(), digest: word, account: fc.uuid() }).map(toText) },
)

/** Those of the requests' accounts that must have an owner, so that its absence is not what refuses them. */
export const accountsOfRequests: readonly string[] = accounts

function transfer(operation: 'authorization' | 'return' | 'deposit'): fc.Arbitrary<SigningRequest> {
  return fc
    .record({
      account: fc.constantFrom(...accounts),
      sequence: fc.bigInt(0n, 2n ** 32n),
      value: fc.bigInt(1n, 2_000_000n),
    })
    .map((choice) => transferRequest(operation, choice))
}

function withdrawal(): fc.Arbitrary<SigningRequest> {
  return fc.tuple(fc.constantFrom(...accounts), fc.uuid()).map(([account, id]) => withdrawalRequest(account, id))
}

function changed(honest: fc.Arbitrary<SigningRequest>, change: fc.Arbitrary<Change>): fc.Arbitrary<string> {
  const changes = fc.uniqueArray(change, { minLength: 1, maxLength: 3, selector: ({ name }) => name })
  return fc.tuple(honest, changes).map(([request, applied]) => {
    const json = JSON.parse(encodeRequest(request)) as Json
    for (const { apply } of applied) apply(json)
    return toText(json)
  })
}

function set(path: string, values: fc.Arbitrary<unknown>): fc.Arbitrary<Change> {
  return values.map((value) => ({
    name: path,
    apply: (request) => reach(request, path, (parent, name) => define(parent, name, value)),
  }))
}

function remove(path: string): Change {
  return { name: path, apply: (request) => reach(request, path, (parent, name) => delete parent[name]) }
}

function addField(names: fc.Arbitrary<string>, values: fc.Arbitrary<unknown>): fc.Arbitrary<Change> {
  return fc.tuple(names, values).map(([name, value]) => ({
    name: 'more',
    apply: (request) => define(request, name in request && name !== '__proto__' ? `${name}2` : name, value),
  }))
}

function addMessageField(names: fc.Arbitrary<string>, values: fc.Arbitrary<unknown>): fc.Arbitrary<Change> {
  return fc.tuple(names, values).map(([name, value]) => ({
    name: 'message more',
    apply: ({ message }) => {
      if (typeof message === 'object' && message !== null) define(message as Json, `more${name}`, value)
    },
  }))
}

function shift(seconds: number): Change {
  return {
    name: 'window',
    apply({ message }) {
      const window = message as { validAfter: number; validBefore: number } | null | undefined
      if (typeof window?.validAfter !== 'number' || typeof window.validBefore !== 'number') return
      window.validAfter += seconds
      window.validBefore += seconds
    },
  }
}

/** An own property, also under a name that would otherwise reach for the prototype; a copy, since others may change it. */
function define(parent: Json, name: string, value: unknown): void {
  Object.defineProperty(parent, name, {
    value: structuredClone(value),
    enumerable: true,
    configurable: true,
    writable: true,
  })
}

/** Another change may have taken away what this one is about. */
function reach(request: Json, path: string, then: (parent: Json, name: string) => void): void {
  const names = path.split('.')
  const last = names.pop()!
  let parent: unknown = request
  for (const name of names) parent = (parent as Json | null | undefined)?.[name]
  if (typeof parent === 'object' && parent !== null && !Array.isArray(parent)) then(parent as Json, last)
}

function toHex(bytes: Uint8Array): string {
  return `0x${Buffer.from(bytes).toString('hex')}`
}

function toText(value: unknown): string {
  return JSON.stringify(value)
}
