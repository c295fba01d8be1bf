import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { cpSync, mkdirSync, readdirSync, realpathSync, symlinkSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import { atEnd } from '../../test/support/at-end.ts'
import type { Targets } from '../../test/support/hostile-page-worker.ts'
import { temporaryFolder } from '../../test/support/signing.ts'
import type { ReadQuestion } from './page-channel.ts'
import { createPageReader, type PageReader, type PageReaderLimits, pageReaderLimits } from './page-reader.ts'
import { FetchFailedError } from './web-fetch.ts'

const never = new AbortController().signal
const hostile = new URL('../../test/support/hostile-page-worker.ts', import.meta.url)

test('a page that takes over the parser reaches no file, network, process, thread or secret', async (t) => {
  const folder = temporaryFolder(t)
  const file = join(folder, 'master.key')
  writeFileSync(file, 'secret')
  let connections = 0
  const listen = async (where: string | number) => {
    const server = createServer((socket) => {
      connections += 1
      socket.destroy()
    })
    await new Promise<void>((resolve) => server.listen(where, resolve))
    atEnd(t, () => void server.close())
    return server
  }
  const socket = join(folder, 'signer.sock')
  await listen(socket)
  const address = (await listen(0)).address() as { port: number }
  process.env.MASTER_KEY = 'ab'.repeat(32)
  atEnd(t, () => void delete process.env.MASTER_KEY)

  const reader = hostileReader(t)
  const targets: Targets = { socket, port: address.port, file, folder }
  const { environment, sockets, ...outcomes } = JSON.parse(await order(reader, 'attack', { targets }))

  assert.deepEqual(environment, {})
  // Standard input and output, which are its channel.
  assert.ok(
    sockets.every((descriptor: number) => descriptor <= 1),
    `open sockets: ${sockets}`,
  )
  const { addon, compile, signal, ...denied } = outcomes
  assert.deepEqual(new Set(Object.values(denied)), new Set(['ERR_ACCESS_DENIED']), JSON.stringify(denied))
  assert.deepEqual([addon, compile, signal], ['ERR_DLOPEN_DISABLED', 'EvalError', 'TypeError'])
  assert.equal(connections, 0)
  assert.deepEqual(readdirSync(folder).sort(), ['master.key', 'signer.sock'])
})

// Each connection is an open file: a page that was to be read then ended the service.
test('a page that cannot be read because too many files are open fails, and the next page is read', async () => {
  const script = `
    import { closeSync, openSync } from 'node:fs'
    import { createPageReader, pageReaderLimits } from ${JSON.stringify(new URL('page-reader.ts', import.meta.url))}
    const reader = createPageReader({ ...pageReaderLimits, processesMax: 1, readMsMax: 60_000 })
    const read = () =>
      reader.read({ kind: 'text', body: Buffer.from('read'), contentType: '', url: '', charactersMax: 9 }, new AbortController().signal, 'a')
    const files = []
    try {
      for (;;) files.push(openSync('/dev/null'))
    } catch {}
    const outcomes = []
    // From none free for the manifests that are read before, to too few for the pipes.
    for (let free = 0; free < 4; free += 1) {
      outcomes.push(await read().then(({ text }) => text, (error) => error.constructor.name))
      closeSync(files.pop())
    }
    for (const file of files) closeSync(file)
    outcomes.push((await read()).text)
    await reader.close()
    console.log(outcomes.join())`
  const node = [process.execPath, '--eval', script]
  const limited = ['-c', 'ulimit -n 100 && exec "$@"', 'sh', ...node]
  const { stdout } = await promisify(execFile)('/bin/sh', limited, { timeout: 60_000 })
  assert.equal(stdout.trim(), [...Array(4).fill('UnreadablePageError'), 'read'].join())
})

for (const what of ['hang', 'wait', 'crash', 'exit', 'babble', 'flood', 'lie', 'stall'] as const) {
  test(`a parser that does this fails only its page: ${what}`, async (t) => {
    // Only these two end by the timeout, which the good page must not reach on a busy machine.
    const readMsMax = what === 'hang' || what === 'wait' ? 3_000 : 60_000
    const reader = hostileReader(t, { readMsMax })
    const [failed, next] = await Promise.allSettled([order(reader, what), order(reader, 'echo')])
    assert.ok(failed.status === 'rejected' && failed.reason instanceof FetchFailedError)
    assert.equal(next.status, 'fulfilled')
  })
}

// A page that had taken over its parser answered for the page of the next customer.
test('no process reads a second page, and none is left of a page that was read', async (t) => {
  const reader = hostileReader(t, { processesMax: 2 })
  const pids: string[] = []
  for (let page = 0; page < 4; page += 1) pids.push(await order(reader, 'echo', { account: `${page}` }))
  assert.equal(new Set(pids).size, 4)
  assert.equal(await order(reader, 'linger'), 'done')
  assert.match(await order(reader, 'echo'), /^\d+$/)
  for (const pid of pids) assert.throws(() => process.kill(Number(pid), 0), { code: 'ESRCH' })
})

test('the limit of a page counts reading it, not starting a process and loading its code', async (t) => {
  // Less than the worker takes to load the code for a PDF.
  const reader = hostileReader(t, { readMsMax: 2_500 })
  assert.match(await order(reader, 'echo', { kind: 'pdf' }), /^\d+$/)
})

test('a process that is never ready is given up', async (t) => {
  const reader = hostileReader(t, { startMsMax: 1 })
  await assert.rejects(order(reader, 'echo'), FetchFailedError)
})

test('concurrent pages, some of which kill their process, all get an answer', async (t) => {
  const reader = hostileReader(t, { processesMax: 2, waitingMax: 64 })
  const orders = Array.from({ length: 8 }, (_, index) => (index % 3 === 2 ? ('crash' as const) : ('echo' as const)))
  const outcomes = await Promise.allSettled(orders.map((what, index) => order(reader, what, { account: `${index}` })))
  assert.deepEqual(
    outcomes.map(({ status }) => status),
    orders.map((what) => (what === 'crash' ? 'rejected' : 'fulfilled')),
  )
})

test('closing ends the process of a page that is being read', async () => {
  const reader = createPageReader({ ...pageReaderLimits, processesMax: 1 }, hostile)
  const pid = Number(await order(reader, 'echo'))
  const hanging = assert.rejects(order(reader, 'hang'), FetchFailedError)
  await reader.close()
  await hanging
  assert.throws(() => process.kill(pid, 0), { code: 'ESRCH' })
})

test('pages are read where the program and its packages are reached over links', async (t) => {
  const folder = realpathSync(temporaryFolder(t))
  const source = fileURLToPath(new URL('../..', import.meta.url))
  cpSync(join(source, 'src'), join(folder, 'real/src'), { recursive: true })
  cpSync(join(source, 'package.json'), join(folder, 'real/package.json'))
  mkdirSync(join(folder, 'real/node_modules'))
  for (const name of ['parse5', 'unpdf'])
    symlinkSync(join(source, 'node_modules', name), join(folder, 'real/node_modules', name))
  symlinkSync(join(folder, 'real'), join(folder, 'link'))
  const linked = (await import(pathToFileURL(join(folder, 'link/src/tools/page-reader.ts')).href)) as {
    createPageReader: typeof createPageReader
  }
  const reader = linked.createPageReader()
  atEnd(t, () => reader.close())
  const page = await reader.read(question('html', '<p>linked</p>'), never, 'a')
  assert.equal(page.text, 'linked')
  const problem = await reader.read(question('pdf', 'not one'), never, 'a').catch((error: Error) => error.cause)
  assert.match(String(problem), /PDF/)
})

function hostileReader(t: TestContext, limits: Partial<PageReaderLimits> = {}): PageReader {
  const reader = createPageReader({ ...pageReaderLimits, processesMax: 1, ...limits }, hostile)
  atEnd(t, () => reader.close())
  return reader
}

async function order(
  reader: PageReader,
  what: string,
  { targets, kind = 'text', account = 'a' }: { targets?: Targets; kind?: ReadQuestion['kind']; account?: string } = {},
): Promise<string> {
  return (await reader.read(question(kind, JSON.stringify({ do: what, targets })), never, account)).text
}

function question(kind: ReadQuestion['kind'], body: string): ReadQuestion {
  return { kind, body: Buffer.from(body), contentType: '', url: 'https://site.example/', charactersMax: 10_000 }
}
