import { once } from 'node:events'
import { createServer, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { TestContext } from 'node:test'
import { atEnd } from './at-end.ts'
import { post } from './sandbox-chain.ts'

export type RpcCall = { readonly method: string; readonly params: readonly unknown[] }

/** What the node would have said. */
// biome-ignore lint/suspicious/noExplicitAny: answers of any shape, to be spoilt by tests
export type RpcAnswer = { result?: any; error?: { code: number; message: string; data?: string } }

/** Decides about one call: pass it on or not, and what to answer. `hang up` closes the connection, a text is sent as it is. */
export type RpcFault = (
  call: RpcCall,
  forward: () => Promise<RpcAnswer>,
) => Promise<RpcAnswer | 'hang up' | { text: string }>

export type RpcProxy = {
  readonly url: string
  readonly calls: RpcCall[]
  /** The way of this node from now on; undefined for an honest one. */
  fault: RpcFault | undefined
}

/** A node in front of a node, which may lie. */
export async function startRpcProxy(test: TestContext, target: string): Promise<RpcProxy> {
  const calls: RpcCall[] = []
  const proxy = { url: '', calls, fault: undefined as RpcFault | undefined }
  const server = createServer(async (request, response) => {
    const body = await readBody(request)
    const { id, method, params } = JSON.parse(body) as RpcCall & { readonly id: number }
    const forward = async () => (await post(target, body)).answer as RpcAnswer
    const call = { method, params }
    calls.push(call)
    const answer = await (proxy.fault?.(call, forward) ?? forward()).catch(() => 'hang up' as const)
    if (answer === 'hang up') {
      request.socket.destroy()
      return
    }
    response.setHeader('content-type', 'application/json')
    response.end('text' in answer ? answer.text : JSON.stringify({ ...answer, jsonrpc: '2.0', id }))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  atEnd(test, () => {
    server.close()
    server.closeAllConnections()
  })
  proxy.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  return proxy
}

async function readBody(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = []
  for await (const chunk of request) chunks.push(chunk)
  return Buffer.concat(chunks).toString()
}
