import assert from 'node:assert/strict'
import { once } from 'node:events'
import { mkdirSync } from 'node:fs'
import { createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { isDeepStrictEqual } from 'node:util'
import { atEnd } from '../../test/support/at-end.ts'
import { createCustodian, keys, temporaryFolder } from '../../test/support/signing.ts'
import { removeSocketLink } from '../db/embedded/socket-link.ts'
import { SignerFaultError, SignerLine, SignerUnavailableError } from './signer-line.ts'
import { serveSigner } from './signer-server.ts'
import { signerFolder, signerSocketPath } from './signer-socket.ts'

const account = '0190a1b2-c3d4-7000-8000-000000000001'
const request = { operation: 'address', account } as const
const answer = { address: keys.ofAccount(account).address }

test('requests wait for a signer that is not there yet', async (t) => {
  const dataDir = temporaryFolder(t)
  const line = openLine(t, { dataDir })
  const asked = line.ask(request)
  const server = await serveSigner(dataDir, () => createCustodian(t))
  atEnd(t, () => server.close())
  assert.deepEqual(await asked, answer)
})

test('a data folder with a path of any length works', async (t) => {
  const dataDir = join(temporaryFolder(t), 'x'.repeat(120), 'y'.repeat(120))
  mkdirSync(dataDir, { recursive: true })
  const server = await serveSigner(dataDir, () => createCustodian(t))
  atEnd(t, async () => {
    await server.close()
    await removeSocketLink(signerFolder(dataDir))
  })
  assert.deepEqual(await openLine(t, { dataDir }).ask(request), answer)
})

test('requests to a signer that never starts time out, and their number is limited', async (t) => {
  const line = openLine(t, { dataDir: temporaryFolder(t), waitMsMax: 50, queueMax: 3 })
  const outcomes = await Promise.allSettled([1, 2, 3, 4].map(() => line.ask(request)))
  assert.deepEqual(
    outcomes.map((outcome) => outcome.status === 'rejected' && String(outcome.reason.message)),
    [...Array(3).fill('the signer does not answer'), 'the signer is overloaded'],
  )
})

test('after a timeout the connection to a silent signer is reopened and requests are sent again', async (t) => {
  const dataDir = temporaryFolder(t)
  const asked = await scriptSigner(t, dataDir, (socket, line, count) => {
    // The first connection gets no answer.
    if (count > 1) socket.write(`${JSON.stringify({ id: line.id, answers: line.requests.map(() => answer) })}\n`)
  })
  assert.deepEqual(await openLine(t, { dataDir, silentMsMax: 1_000 }).ask(request), answer)
  // More than two when a busy machine delays the second answer by a second.
  assert.ok(asked.length >= 2)
  for (const batch of asked) assert.deepEqual(batch, asked[0])
})

test('a batch has at most 32 requests, and unanswered ones are sent again in order', async (t) => {
  const dataDir = temporaryFolder(t)
  const asked = await scriptSigner(t, dataDir, (socket, line, count) => {
    if (count === 2) socket.destroy()
    else socket.write(`${JSON.stringify({ id: line.id, answers: line.requests })}\n`)
  })
  const line = openLine(t, { dataDir })
  const accounts = Array.from({ length: 100 }, (_, index) => account.replace(/.{3}$/, String(index).padStart(3, '0')))
  const answers = await Promise.all(accounts.map((id) => line.ask({ operation: 'address', account: id })))
  assert.deepEqual(
    answers.map((echo) => (echo as unknown as { account: string }).account),
    accounts,
  )
  assert.ok(asked.every((batch) => batch.length <= 32))
  assert.ok([asked[0], asked[1]].some((lost) => isDeepStrictEqual(lost, asked[2])))
})

test('an invalid answer is a fault and is not retried', async (t) => {
  const garbage = [
    'rubbish',
    '{}',
    '[]',
    'null',
    '{"id":77,"answers":[{}]}',
    '{"id":1,"answers":[]}',
    'x'.repeat(200_000),
  ]
  for (const text of garbage) {
    const dataDir = temporaryFolder(t)
    const asked = await scriptSigner(t, dataDir, (socket) => socket.write(`${text}\n`))
    await assert.rejects(openLine(t, { dataDir }).ask(request), SignerFaultError, text.slice(0, 30))
    assert.equal(asked.length, 1)
  }
})

test('pending requests fail when the connection is closed', async (t) => {
  const line = openLine(t, { dataDir: temporaryFolder(t) })
  const asked = line.ask(request)
  line.close()
  await assert.rejects(asked, SignerUnavailableError)
  await assert.rejects(line.ask(request), SignerUnavailableError)
})

type ScriptedLine = { readonly id: number; readonly requests: readonly unknown[] }

/** A fake signer on a real socket. Returns the received requests, batch by batch. */
async function scriptSigner(
  t: TestContext,
  dataDir: string,
  onBatch: (socket: Socket, line: ScriptedLine, count: number) => void,
): Promise<(readonly unknown[])[]> {
  mkdirSync(signerFolder(dataDir))
  const asked: (readonly unknown[])[] = []
  const sockets = new Set<Socket>()
  const server = createServer((socket) => {
    sockets.add(socket)
    let text = ''
    socket.on('error', () => {})
    socket.on('data', (chunk) => {
      const lines = (text + chunk).split('\n')
      text = lines.pop()!
      for (const line of lines.map((part) => JSON.parse(part) as ScriptedLine)) {
        onBatch(socket, line, asked.push(line.requests))
      }
    })
  })
  server.listen(await signerSocketPath(dataDir))
  await once(server, 'listening')
  atEnd(t, () => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  return asked
}

function openLine(t: TestContext, options: ConstructorParameters<typeof SignerLine>[0]): SignerLine {
  const line = new SignerLine(options)
  atEnd(t, () => line.close())
  return line
}
