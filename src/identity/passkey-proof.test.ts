import assert from 'node:assert/strict'
import { createHash, createPublicKey, generateKeyPairSync, type KeyObject, randomBytes, sign } from 'node:crypto'
import { test } from 'node:test'
import { coseKey } from '../../test/support/passkey-device.ts'
import webauthn from './__fixtures__/webauthn.json' with { type: 'json' }
import wycheproof from './__fixtures__/wycheproof.json' with { type: 'json' }
import { CborReader } from './cbor.ts'
import {
  checkAssertion,
  isSigned,
  type NewPasskey,
  type PasskeyAlgorithm,
  passkeyAlgorithms,
  readRegistration,
} from './passkey-proof.ts'

const party = { id: 'penny.example', origin: 'https://penny.example' }
const place = createHash('sha256').update(party.id).digest()

type Pair = { readonly publicKey: KeyObject; readonly privateKey: KeyObject }

function clientData(type: string, more: object = {}): string {
  return Buffer.from(JSON.stringify({ type, challenge: 'eA', origin: party.origin, ...more })).toString('base64url')
}

type Lies = {
  readonly flags?: number
  readonly key?: Buffer
  readonly after?: Buffer
  readonly client?: object
}

function register({ publicKey }: Pair, algorithm: number, { flags = 0x45, key, after, client }: Lies = {}): NewPasskey {
  const id = randomBytes(16)
  const head = [place, Buffer.from([flags, 0, 0, 0, 0]), randomBytes(16), Buffer.from([0, 16]), id]
  const data = Buffer.concat([...head, key ?? coseKey(publicKey, algorithm), after ?? Buffer.alloc(0)])
  return readRegistration(
    {
      id: id.toString('base64url'),
      clientDataJSON: clientData('webauthn.create', client),
      authenticatorData: data.toString('base64url'),
      publicKey: publicKey.export({ format: 'der', type: 'spki' }).toString('base64url'),
      publicKeyAlgorithm: algorithm,
    },
    party,
  )
}

function assertion({ privateKey }: Pair, hash: 'sha256' | null, count: number) {
  const data = Buffer.concat([place, Buffer.from([0x05, 0, 0, 0, count])])
  const clientDataJSON = clientData('webauthn.get')
  const signed = Buffer.concat([data, createHash('sha256').update(Buffer.from(clientDataJSON, 'base64url')).digest()])
  return {
    id: 'x',
    clientDataJSON,
    authenticatorData: data.toString('base64url'),
    signature: sign(hash, signed, privateKey).toString('base64url'),
  }
}

const kinds = [
  [-7, 'sha256', generateKeyPairSync('ec', { namedCurve: 'P-256' })],
  [-8, null, generateKeyPairSync('ed25519')],
  [-257, 'sha256', generateKeyPairSync('rsa', { modulusLength: 2048 })],
] as const

test('all key types of devices are accepted, and each verifies only its own signatures', () => {
  for (const [algorithm, hash, pair] of kinds) {
    const passkey = register(pair, algorithm)
    assert.equal(checkAssertion(assertion(pair, hash, 0), passkey, party), 0)
    for (const [, otherHash, other] of kinds.filter((kind) => kind[2] !== pair)) {
      assert.throws(() => checkAssertion(assertion(other, otherHash, 0), passkey, party), { code: 'sign_in_failed' })
    }
  }
})

test('a key of another type than it says, or a weak one, is refused', () => {
  const [[, , curve], [, , edwards]] = kinds
  assert.throws(() => register(curve, -8), { code: 'sign_in_failed' })
  assert.throws(() => register(edwards, -257), { code: 'sign_in_failed' })
  assert.throws(() => register(generateKeyPairSync('ec', { namedCurve: 'P-384' }), -7), { code: 'sign_in_failed' })
  assert.throws(() => register(generateKeyPairSync('rsa', { modulusLength: 1024 }), -257), { code: 'sign_in_failed' })
})

test('an answer that the standard forbids is refused, and what it allows is taken', () => {
  const [[, , curve], [, , edwards], [, , rsa]] = kinds
  const other = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const own = coseKey(curve.publicKey, -7)
  const extension = Buffer.from('a16b6372656450726f7465637402', 'hex')
  const forbidden: readonly Lies[] = [
    { client: { crossOrigin: 'true' } },
    { client: { crossOrigin: true } },
    { client: { crossOrigin: 1 } },
    { client: { topOrigin: 'https://evil.example' } },
    { client: { crossOrigin: false, topOrigin: null, origin: 'https://evil.example' } },
    { flags: 0x55 },
    { after: Buffer.from([0]) },
    { after: extension },
    { flags: 0xc5 },
    { flags: 0xc5, after: Buffer.concat([extension, Buffer.from([0])]) },
    { flags: 0xc5, after: Buffer.from([0x81, 0x80]) },
    { key: coseKey(other.publicKey, -7) },
    { key: coseKey(edwards.publicKey, -8) },
    { key: own.subarray(0, -1) },
    { key: Buffer.alloc(0) },
    { key: Buffer.from('9a7fffffff', 'hex') },
  ]
  for (const lies of forbidden)
    assert.throws(() => register(curve, -7, lies), { code: 'sign_in_failed' }, JSON.stringify(lies))
  for (const allowed of [
    { flags: 0x5d },
    { flags: 0x4d },
    { flags: 0xc5, after: extension },
    { client: { crossOrigin: false } },
  ])
    assert.equal(register(curve, -7, allowed).algorithm, -7, JSON.stringify(allowed))
  const { n } = rsa.publicKey.export({ format: 'jwk' })
  const anyone = createPublicKey({ key: { kty: 'RSA', n: n!, e: 'AQ' }, format: 'jwk' })
  assert.throws(() => register({ publicKey: anyone, privateKey: rsa.privateKey }, -257), { code: 'sign_in_failed' })
})

test('a passkey whose signature counter goes back is refused as a copy', () => {
  const [algorithm, hash, pair] = kinds[0]
  const passkey = { ...register(pair, algorithm), signCount: 5 }
  assert.equal(checkAssertion(assertion(pair, hash, 6), passkey, party), 6)
  for (const count of [5, 4, 0]) {
    assert.throws(() => checkAssertion(assertion(pair, hash, count), passkey, party), { code: 'sign_in_failed' })
  }
})

test('cut or garbled data is refused like a wrong signature', () => {
  const [algorithm, hash, pair] = kinds[0]
  const passkey = register(pair, algorithm)
  const good = assertion(pair, hash, 0)
  for (let length = 0; length < 37; length += 1) {
    const cut = Buffer.from(good.authenticatorData, 'base64url').subarray(0, length).toString('base64url')
    assert.throws(() => checkAssertion({ ...good, authenticatorData: cut }, passkey, party), { code: 'sign_in_failed' })
  }
  for (const garbled of [
    '',
    'AA',
    Buffer.from('null').toString('base64url'),
    Buffer.from('[]').toString('base64url'),
  ]) {
    assert.throws(() => checkAssertion({ ...good, clientDataJSON: garbled }, passkey, party), {
      code: 'sign_in_failed',
    })
    assert.throws(() => checkAssertion({ ...good, signature: garbled }, passkey, party), { code: 'sign_in_failed' })
  }
})

const example = { id: 'example.org', origin: 'https://example.org' }
const encoded = (hex: string) => Buffer.from(hex, 'hex').toString('base64url')

for (const { name, registration, authentication } of webauthn.vectors) {
  test(`of the W3C's test vectors exactly those that our terms allow are accepted: ${name}`, () => {
    const data = Buffer.from(registration.authenticatorData, 'hex')
    const idLength = data.readUInt16BE(53)
    const cose = new CborReader(data.subarray(55 + idLength)).item() as Map<number, number | Buffer>
    const algorithm = cose.get(3) as PasskeyAlgorithm
    const isOurs = passkeyAlgorithms.includes(algorithm)
    const publicKey = isOurs ? spkiOf(cose) : Buffer.alloc(0)
    const register = (authenticatorData: string) =>
      readRegistration(
        {
          id: data.subarray(55, 55 + idLength).toString('base64url'),
          clientDataJSON: encoded(registration.clientDataJSON),
          authenticatorData,
          publicKey: publicKey.toString('base64url'),
          publicKeyAlgorithm: algorithm,
        },
        example,
      )
    // We always ask for user verification and are never in a frame; the vectors also have passkeys without either.
    const isOnTop = !/crossOrigin|topOrigin/.test(name)
    const isVerified = (flags: number) => (flags & 4) !== 0
    const accepts = (isAccepted: boolean, run: () => unknown) =>
      isAccepted ? assert.doesNotThrow(run) : assert.throws(run, { code: 'sign_in_failed' })
    accepts(isOurs && isOnTop && isVerified(data[32]!), () => register(data.toString('base64url')))
    // The flags of a registration without attestation are not signed.
    const verified = Buffer.from(data)
    verified[32]! |= 4
    accepts(isOurs && isOnTop, () => register(verified.toString('base64url')))
    if (!isOurs) return
    const [signedData, client, signature] = [
      authentication.authenticatorData,
      authentication.clientDataJSON,
      authentication.signature,
    ].map((hex) => Buffer.from(hex, 'hex')) as [Buffer, Buffer, Buffer]
    const hash = createHash('sha256').update(client).digest()
    assert.ok(isSigned(Buffer.concat([signedData, hash]), signature, { publicKey, algorithm }))
    const answer = {
      id: 'x',
      authenticatorData: signedData.toString('base64url'),
      clientDataJSON: client.toString('base64url'),
      signature: signature.toString('base64url'),
    }
    accepts(isOnTop && isVerified(signedData[32]!), () =>
      checkAssertion(answer, { publicKey, algorithm, signCount: 0 }, example),
    )
  })
}

for (const [file, { algorithm, groups }] of Object.entries(wycheproof.files)) {
  test(`signatures of Wycheproof are valid or not, as it says: ${file}`, () => {
    for (const { key, tests } of groups)
      for (const { id, comment, msg, sig, result } of tests) {
        const passkey = { publicKey: Buffer.from(key, 'hex'), algorithm: algorithm as PasskeyAlgorithm }
        const isValid = isSigned(Buffer.from(msg, 'hex'), Buffer.from(sig, 'hex'), passkey)
        if (result !== 'acceptable') assert.equal(isValid, result === 'valid', `${id} ${comment}`)
      }
  })
}

function spkiOf(cose: Map<number, number | Buffer>): Buffer {
  const text = (label: number) => (cose.get(label) as Buffer).toString('base64url')
  const forms = {
    2: () => ({ kty: 'EC', crv: 'P-256', x: text(-2), y: text(-3) }),
    1: () => ({ kty: 'OKP', crv: 'Ed25519', x: text(-2) }),
    3: () => ({ kty: 'RSA', n: text(-1), e: text(-2) }),
  }
  const key = forms[cose.get(1) as 1 | 2 | 3]()
  return createPublicKey({ key, format: 'jwk' }).export({ format: 'der', type: 'spki' })
}
