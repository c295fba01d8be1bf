import { createHash, generateKeyPairSync, type KeyObject, randomBytes, sign } from 'node:crypto'
import type { DashboardClient, Json } from './dashboard-client.ts'

type Lies = {
  readonly origin?: string
  readonly rpId?: string
  readonly flags?: number
  readonly key?: KeyObject
  readonly challenge?: string
}

/** A passkey as a device would keep it. */
export class Device {
  readonly id = randomBytes(32)
  readonly privateKey: KeyObject
  readonly #publicKey: KeyObject

  constructor() {
    const pair = generateKeyPairSync('ec', { namedCurve: 'P-256' })
    this.privateKey = pair.privateKey
    this.#publicKey = pair.publicKey
  }

  async register(client: DashboardClient): Promise<Json> {
    const { options } = await client.post('/api/auth/passkey/options', { purpose: 'register' })
    const credentialLength = Buffer.from([0, this.id.length])
    const head = [this.#data(options.rp.id, 0x45), randomBytes(16), credentialLength, this.id]
    const data = Buffer.concat([...head, coseKey(this.#publicKey, -7)])
    return {
      id: this.id.toString('base64url'),
      rawId: this.id.toString('base64url'),
      type: 'public-key',
      clientExtensionResults: {},
      response: {
        clientDataJSON: this.#client('webauthn.create', options.challenge, client.origin),
        attestationObject: '',
        authenticatorData: data.toString('base64url'),
        publicKey: this.#publicKey.export({ format: 'der', type: 'spki' }).toString('base64url'),
        publicKeyAlgorithm: -7,
        transports: ['internal'],
      },
    }
  }

  async signIn(client: DashboardClient, lies: Lies = {}): Promise<Json> {
    const { options } = await client.post('/api/auth/passkey/options', { purpose: 'sign_in' })
    return this.answer(client, options, lies)
  }

  /** An owner address, confirmed. */
  async confirm(client: DashboardClient, address: string): Promise<Json> {
    const { options } = await client.post('/api/owner/challenge', { address })
    return this.answer(client, options)
  }

  answer(client: DashboardClient, options: Json, lies: Lies = {}): Json {
    const data = this.#data(lies.rpId ?? options.rpId, lies.flags ?? 0x05)
    const clientData = this.#client('webauthn.get', lies.challenge ?? options.challenge, lies.origin ?? client.origin)
    const hash = createHash('sha256').update(Buffer.from(clientData, 'base64url')).digest()
    return {
      id: this.id.toString('base64url'),
      rawId: this.id.toString('base64url'),
      type: 'public-key',
      response: {
        clientDataJSON: clientData,
        authenticatorData: data.toString('base64url'),
        signature: sign('sha256', Buffer.concat([data, hash]), lies.key ?? this.privateKey).toString('base64url'),
        userHandle: null,
      },
    }
  }

  #data(rpId: string, flags: number): Buffer {
    return Buffer.concat([createHash('sha256').update(rpId).digest(), Buffer.from([flags, 0, 0, 0, 0])])
  }

  #client(type: string, challenge: string, origin: string): string {
    return Buffer.from(JSON.stringify({ type, challenge, origin, crossOrigin: false })).toString('base64url')
  }
}

/** A public key as authenticators send it: a map in CBOR. */
export function coseKey(key: KeyObject, algorithm: number): Buffer {
  const { x, y, n, e } = key.export({ format: 'jwk' })
  const [type, ...rest] = { [-7]: [2, 1, x, y], [-8]: [1, 6, x], [-257]: [3, n, e] }[algorithm]!
  const labels = [1, 3, -1, -2, -3]
  const values = [type, algorithm, ...rest]
  const entries = values.flatMap((value, index) => [cborOf(labels[index]!), cborOf(value ?? '')])
  return Buffer.concat([Buffer.from([0xa0 + values.length]), ...entries])
}

function cborOf(value: number | string): Buffer {
  if (typeof value === 'number') return value < 0 ? cborHead(1, -1 - value) : cborHead(0, value)
  const bytes = Buffer.from(value, 'base64url')
  return Buffer.concat([cborHead(2, bytes.length), bytes])
}

function cborHead(major: number, value: number): Buffer {
  if (value < 24) return Buffer.from([(major << 5) + value])
  return value < 256
    ? Buffer.from([(major << 5) + 24, value])
    : Buffer.from([(major << 5) + 25, value >> 8, value & 255])
}
