import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { test } from 'node:test'
import { atEnd } from '../../test/support/at-end.ts'
import type { Address } from '../signer/address.ts'
import { openChain, refuseUnusableNode } from './chain.ts'

const address = (digit: string) => `0x${digit.repeat(40)}` as Address

test('a node that is still syncing is retried; one that refuses is named, without its key', async (t) => {
  const answers: object[] = [
    { error: { code: -32002, message: 'still replaying' } },
    { result: '0x4cef52' },
    { error: { code: -32001, message: 'no such key' } },
  ]
  const server = createServer((_, response) =>
    response.end(JSON.stringify({ jsonrpc: '2.0', id: 1, ...answers.shift() })),
  )
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  atEnd(t, () => {
    server.close()
    server.closeAllConnections()
  })
  const rpcUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v2/hunter2hunter2hunter2hunter2`
  const open = () => openChain({ rpcUrl, usdc: address('1'), gatewayWallet: address('2') })
  assert.equal((await refuseUnusableNode(rpcUrl, open)).chainId, 5_042_002)
  await assert.rejects(refuseUnusableNode(rpcUrl, open), (error: Error) => {
    assert.match(error.message, /^CHAIN_RPC_URL cannot be used: .*no such key/)
    assert.doesNotMatch(error.message, /hunter/)
    return true
  })
})
