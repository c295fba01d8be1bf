import { once } from 'node:events'
import { createServer, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import { beChild } from './child.ts'

// Receivers of webhooks that are of no use, in a process of their own: one never answers, one always fails.

export type DeadReceivers = { readonly silentUrl: string; readonly failingUrl: string }

beChild<object, DeadReceivers, never, never>(async () => ({
  ready: {
    silentUrl: await listen((request) => void request.resume()),
    failingUrl: await listen((request, response) => {
      request.resume()
      response.writeHead(500).end()
    }),
  },
}))

async function listen(listener: RequestListener): Promise<string> {
  const server = createServer(listener).listen(0, '127.0.0.1')
  await once(server, 'listening')
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/`
}
