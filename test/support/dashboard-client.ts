import assert from 'node:assert/strict'
import { randomInt } from 'node:crypto'
import { generatePrivateKey, type PrivateKeyAccount, privateKeyToAccount } from 'viem/accounts'
import type { TestService } from './service.ts'

/** Behaves like a browser: keeps its cookie and sends the origin of its requests. */
export class DashboardClient {
  readonly origin: string
  /** Of a network of its own, so that tests are not counted together; the service must trust what it says (TRUST_PROXY). */
  readonly address = `127.${randomInt(1, 255)}.${randomInt(1, 255)}.${randomInt(1, 255)}`
  cookie: string | undefined
  /** All response bodies, for tests that search them for secrets. */
  readonly bodies: string[] = []

  constructor({ origin }: Pick<TestService, 'origin'>) {
    this.origin = origin
  }

  async send(method: string, path: string, body?: unknown, headers: Record<string, string> = {}): Promise<Response> {
    const response = await fetch(`${this.origin}${path}`, {
      method,
      redirect: 'manual',
      headers: {
        origin: this.origin,
        'sec-fetch-site': 'same-origin',
        'x-forwarded-for': this.address,
        ...(this.cookie !== undefined && { cookie: this.cookie }),
        ...(body !== undefined && { 'content-type': 'application/json' }),
        ...headers,
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    })
    const cookie = response.headers.get('set-cookie')
    if (cookie !== null) this.cookie = cookie.split(';', 1)[0]
    return response
  }

  /** The answer's body; anything but success fails the test. */
  async get<Body = Json>(path: string): Promise<Body> {
    return this.#succeed(await this.send('GET', path))
  }

  async post<Body = Json>(path: string, body: unknown = {}, headers: Record<string, string> = {}): Promise<Body> {
    return this.#succeed(await this.send('POST', path, body, headers))
  }

  async patch<Body = Json>(path: string, body: unknown): Promise<Body> {
    return this.#succeed(await this.send('PATCH', path, body))
  }

  async delete<Body = Json>(path: string): Promise<Body> {
    return this.#succeed(await this.send('DELETE', path))
  }

  /** The status and the error's code of a request that is refused. */
  async refusal(
    method: string,
    path: string,
    body?: unknown,
    headers?: Record<string, string>,
  ): Promise<[number, string]> {
    const response = await this.send(method, path, body, headers)
    const { error } = (await response.json()) as { error?: { code: string } }
    return [response.status, error?.code ?? 'none']
  }

  async #succeed<Body>(response: Response): Promise<Body> {
    const text = await response.text()
    this.bodies.push(text)
    assert.ok(response.ok, `${response.status} ${text}`)
    return (text === '' ? undefined : JSON.parse(text)) as Body
  }
}

// biome-ignore lint/suspicious/noExplicitAny: tests read a few members of many shapes, which the contract test checks whole
export type Json = any

export function createWallet(): PrivateKeyAccount {
  return privateKeyToAccount(generatePrivateKey())
}

/** The message that the service asks a wallet to sign, signed. */
export async function signedMessage(
  client: DashboardClient,
  wallet: PrivateKeyAccount,
): Promise<{ readonly message: string; readonly signature: string }> {
  const { message } = await client.post<{ message: string }>('/api/auth/nonce', { address: wallet.address })
  return { message, signature: await wallet.signMessage({ message }) }
}

/** A new person, signed in with a wallet, whose account has only money. */
export async function signInNew(service: TestService, balance = '0'): Promise<DashboardClient & { accountId: string }> {
  const client = new DashboardClient(service)
  const { account } = await client.post('/api/auth/wallet', await signedMessage(client, createWallet()))
  if (balance !== '0') await service.credit(account.id, balance)
  return Object.assign(client, { accountId: account.id as string })
}
