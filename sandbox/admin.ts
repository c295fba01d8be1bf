import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { isAddress } from 'viem'
import { isSameSecret } from '../src/process/same-secret.ts'
import type { ChainAdmin } from './chain/server.ts'
import { adminFile, modelFailures, type SandboxAdmin } from './client.ts'
import type { ModelTrouble } from './model/server.ts'

const bodyBytesMax = 4_096
const blocksMax = 10_000
const slowMsMax = 60_000

type AdminTargets = {
  readonly chain: ChainAdmin
  /** Undefined when the model is a real one. */
  readonly model: ModelTrouble | undefined
}

/**
 * Actions that no real chain offers: minting money, mining. Protected by a token in the data folder, so that `penny
 * faucet` and the service can call it, and a page in a browser cannot.
 */
export async function startAdminServer(host: string, dataDir: string, targets: AdminTargets): Promise<SandboxAdmin> {
  const token = randomBytes(24).toString('base64url')
  const server = createServer((request, response) => {
    answer(request, token, targets).then(
      (result) => send(response, 200, result),
      (error: unknown) =>
        send(response, error instanceof AdminRefusal ? error.status : 500, {
          message: error instanceof Error ? error.message : String(error),
        }),
    )
  })
  server.listen(0, host)
  await once(server, 'listening')
  const admin = { url: `http://${host}:${(server.address() as AddressInfo).port}`, token }
  writeFileSync(join(dataDir, adminFile), JSON.stringify(admin), { mode: 0o600 })
  return admin
}

async function answer(request: IncomingMessage, token: string, { chain, model }: AdminTargets): Promise<object> {
  if (!isSameSecret(request.headers.authorization ?? '', `Bearer ${token}`))
    throw new AdminRefusal(401, 'the token is missing or wrong')
  const content = await readContent(request)
  switch (request.url) {
    case '/faucet': {
      const { address, atomic } = content
      if (typeof address !== 'string' || !isAddress(address))
        throw new AdminRefusal(400, 'the address is invalid: use 0x and 40 hex digits')
      if (typeof atomic !== 'string' || !/^\d{1,15}$/.test(atomic))
        throw new AdminRefusal(400, 'atomic is not an amount')
      return chain.giveUsdc(address, BigInt(atomic))
    }
    case '/gas': {
      const { address, atomic } = content
      if (typeof address !== 'string' || !isAddress(address))
        throw new AdminRefusal(400, 'the address is invalid: use 0x and 40 hex digits')
      await chain.keepGas(address, BigInt(String(atomic)))
      return {}
    }
    case '/mine':
      await chain.mine(count(content.blocks, 'blocks', blocksMax))
      return {}
    case '/fail-next':
      if (model === undefined) throw new AdminRefusal(409, 'the model is a real one')
      model.failNext()
      return {}
    case '/slow-next':
      if (model === undefined) throw new AdminRefusal(409, 'the model is a real one')
      model.slowNext(count(content.milliseconds, 'milliseconds', slowMsMax, 0))
      return {}
    case '/slow':
      if (model === undefined) throw new AdminRefusal(409, 'the model is a real one')
      model.slow(count(content.milliseconds, 'milliseconds', slowMsMax, 0))
      return {}
    case '/fail': {
      if (model === undefined) throw new AdminRefusal(409, 'the model is a real one')
      const failure = modelFailures.find((one) => one === content.failure)
      if (failure === undefined && content.failure !== null)
        throw new AdminRefusal(400, `unknown failure; use null or one of ${modelFailures.join(', ')}`)
      model.fail(failure)
      return {}
    }
    default:
      throw new AdminRefusal(404, 'no such command')
  }
}

async function readContent(request: IncomingMessage): Promise<Record<string, unknown>> {
  let text = ''
  for await (const chunk of request) {
    text += chunk
    if (text.length > bodyBytesMax) throw new AdminRefusal(413, 'too long')
  }
  try {
    return (JSON.parse(text) ?? {}) as Record<string, unknown>
  } catch {
    throw new AdminRefusal(400, 'not JSON')
  }
}

function count(value: unknown, name: string, max: number, min = 1): number {
  if (typeof value === 'number' && Number.isInteger(value) && value >= min && value <= max) return value
  throw new AdminRefusal(400, `${name} must be from ${min} to ${max}`)
}

function send(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { 'content-type': 'application/json' })
  response.end(JSON.stringify(body))
}

class AdminRefusal extends Error {
  readonly status: number
  constructor(status: number, message: string) {
    super(message)
    this.status = status
  }
}
