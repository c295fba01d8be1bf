import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { pipeline } from 'node:stream'
import { Pool } from 'undici'
import { beChild } from './child.ts'

export type PassThroughSettings = { readonly upstream: string }

/** The minimal proxy in Node: forwards the request, and returns the answer. No key, no meter, no ledger. */
beChild<PassThroughSettings, { origin: string }, never, never>(async ({ upstream }) => {
  const pool = new Pool(upstream, { connections: 10_000, pipelining: 1 })
  const server = createServer({ keepAliveTimeout: 600_000, noDelay: true }, (incoming, outgoing) => {
    const chunks: Buffer[] = []
    incoming.on('data', (chunk: Buffer) => chunks.push(chunk))
    incoming.once('end', async () => {
      const answer = await pool.request({
        method: 'POST',
        path: incoming.url!,
        headers: { 'content-type': 'application/json' },
        body: Buffer.concat(chunks),
      })
      outgoing.writeHead(answer.statusCode, answer.headers)
      pipeline(answer.body, outgoing, () => {})
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return { ready: { origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}` } }
})
