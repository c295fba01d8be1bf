import assert from 'node:assert/strict'
import { createHash, generateKeyPairSync, type KeyObject, randomBytes, sign } from 'node:crypto'
import { test } from 'node:test'
import { checkAssertion, type NewPasskey, readRegistration } from './passkey-proof.ts'

const party = { id: 'penny.example', origin: 'https://penny.example' }
const place = createHash('sha256').update(party.id).digest()

type Pair = { readonly publicKey: KeyObject; readonly privateKey: KeyObject }

function clientData(type: string): string {
  return Buffer.from(JSON.stringify({ type, challenge: 'eA', origin: party.origin })).toString('base64url')
}

function register({ publicKey }: Pair, algorithm: number): NewPasskey {
  const id = randomBytes(16)
  const data = Buffer.concat([place, Buffer.from([0x45, 0, 0, 0, 0]), randomBytes(16), Buffer.from([0, 16]), id])
  return readRegistration(
    {
      id: id.toString('base64url'),
      clientDataJSON: clientData('webauthn.create'),
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
