import { readFileSync } from 'node:fs'
import { join } from 'node:path'

/** The sandbox's admin endpoint, stored in a file that only its owner can read. */
export type SandboxAdmin = { readonly url: string; readonly token: string }

export const adminFile = 'sandbox-admin.json'

/** Client of the running sandbox's admin endpoint: actions that no real chain or model offers. */
export type SandboxClient = {
  faucet(address: string, atomic: bigint): Promise<string>
  /** Gives this much gas, if the address has less than half of it. */
  gas(address: string, atomic: bigint): Promise<void>
  mine(blocks: number): Promise<void>
  failNext(): Promise<void>
  slowNext(milliseconds: number): Promise<void>
  /** Delays every answer, until set again. */
  slow(milliseconds: number): Promise<void>
  /** Undefined: the model answers again. */
  fail(failure: ModelFailure | undefined): Promise<void>
}

/** `kill`: connections are closed. `hang`: no response. `garbage`: a response that is not an event stream. */
export const modelFailures = ['kill', 'hang', '429', '500', 'garbage'] as const
export type ModelFailure = (typeof modelFailures)[number]

const requestMsMax = 120_000

export function sandboxClient(dataDir: string): SandboxClient {
  return {
    async faucet(address, atomic) {
      const { transactionHash } = await post(dataDir, '/faucet', { address, atomic: atomic.toString() })
      return String(transactionHash)
    },
    async gas(address, atomic) {
      await post(dataDir, '/gas', { address, atomic: atomic.toString() })
    },
    async mine(blocks) {
      await post(dataDir, '/mine', { blocks })
    },
    async failNext() {
      await post(dataDir, '/fail-next', {})
    },
    async slowNext(milliseconds) {
      await post(dataDir, '/slow-next', { milliseconds })
    },
    async slow(milliseconds) {
      await post(dataDir, '/slow', { milliseconds })
    },
    async fail(failure) {
      await post(dataDir, '/fail', { failure: failure ?? null })
    },
  }
}

async function post(dataDir: string, path: string, content: object): Promise<Record<string, unknown>> {
  const { url, token } = readAdmin(dataDir)
  const response = await fetch(`${url}${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
    body: JSON.stringify(content),
    signal: AbortSignal.timeout(requestMsMax),
  }).catch((error: unknown) => {
    throw new NoSandboxError(error)
  })
  const answer = (await response.json()) as Record<string, unknown>
  if (!response.ok) throw new SandboxRefusalError(String(answer.message))
  return answer
}

function readAdmin(dataDir: string): SandboxAdmin {
  try {
    return JSON.parse(readFileSync(join(dataDir, adminFile), 'utf8')) as SandboxAdmin
  } catch (error) {
    throw new NoSandboxError(error)
  }
}

export class NoSandboxError extends Error {
  constructor(cause: unknown) {
    super('No sandbox is running on this data folder. Start one with npm start, or set DATA_DIR to its folder.', {
      cause,
    })
    this.name = 'NoSandboxError'
  }
}

export class SandboxRefusalError extends Error {
  constructor(why: string) {
    super(`The sandbox refused: ${why.replace(/\.$/, '')}.`)
    this.name = 'SandboxRefusalError'
  }
}
