import { once } from 'node:events'
import { chmod, mkdir, unlink } from 'node:fs/promises'
import { connect, createServer, type Socket } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'
import { OperatorError } from '../errors.ts'
import type { Custodian } from './custodian.ts'
import { readLines } from './json-lines.ts'
import { signerFolder, signerSocketPath } from './signer-socket.ts'
import { batchMax } from './signing-request.ts'

export type SignerServer = {
  readonly path: string
  readonly custodian: Custodian
  close(): Promise<void>
}

const lineBytesMax = 128 * 1024
const connectionsMax = 64
// Per connection. Beyond it, lines stay in the socket (backpressure) and the caller waits.
const linesWaitingMax = 4
// A signer whose service was killed exits within moments.
const predecessorMsMax = 2_000
const predecessorPauseMs = 50

/**
 * Serves a socket that only this user can reach. Each line is a batch, answered with one line. The custodian is opened after the
 * socket is bound: two custodians must not write to the same register.
 */
export async function serveSigner(dataDir: string, openCustodian: () => Custodian): Promise<SignerServer> {
  const folder = signerFolder(dataDir)
  // Restrict the folder before the socket exists, so that other users can never reach it.
  await mkdir(folder, { recursive: true, mode: 0o700 })
  await chmod(folder, 0o700)
  const path = await signerSocketPath(dataDir)
  await removeStale(path)
  const server = createServer()
  const sockets = new Set<Socket>()
  const close = async () => {
    const closed = once(server, 'close')
    server.close()
    for (const socket of sockets) socket.destroy()
    await closed
  }
  server.maxConnections = connectionsMax
  server.listen(path)
  await once(server, 'listening')
  try {
    const custodian = openCustodian()
    server.on('connection', (socket) => {
      sockets.add(socket)
      socket.on('close', () => sockets.delete(socket))
      serveConnection(custodian, socket)
    })
    await chmod(path, 0o600)
    return { path, custodian, close }
  } catch (error) {
    await close()
    throw error
  }
}

function serveConnection(custodian: Custodian, socket: Socket): void {
  const lines: string[] = []
  let running = false
  // One batch per turn of the event loop: a caller with many requests must not block the others.
  const next = () => {
    const line = lines.shift()
    running = line !== undefined && !socket.destroyed
    if (line === undefined || socket.destroyed) return
    if (lines.length < linesWaitingMax) socket.resume()
    const answer = answerLine(custodian, line)
    if (answer === undefined) socket.destroy()
    else if (socket.write(answer)) setImmediate(next)
    else socket.once('drain', next)
  }
  readLines(socket, {
    bytesMax: lineBytesMax,
    onLine(line) {
      lines.push(line)
      if (lines.length >= linesWaitingMax) socket.pause()
      if (running) return
      running = true
      setImmediate(next)
    },
    onTooLong: () => socket.destroy(),
  })
  // A caller that disconnects is not an error; it sends its requests again after reconnecting.
  socket.on('error', () => socket.destroy())
}

/** Undefined when the line is not a batch. It has no id to answer to, so the connection is closed. */
function answerLine(custodian: Custodian, line: string): string | undefined {
  let batch: { id?: unknown; requests?: unknown } | null
  try {
    batch = JSON.parse(line)
  } catch {
    return undefined
  }
  if (!Number.isSafeInteger(batch?.id) || !Array.isArray(batch?.requests)) return undefined
  if (batch.requests.length > batchMax) return undefined
  const answers = batch.requests.map((request) => custodian.answer(request))
  return `${JSON.stringify({ id: batch.id, answers })}\n`
}

/** Removes the socket that a killed signer left behind, but never one that answers. */
async function removeStale(path: string): Promise<void> {
  const deadline = Date.now() + predecessorMsMax
  while (await answers(path)) {
    if (Date.now() > deadline)
      throw new OperatorError(`Another signer runs on ${path}. Stop it first, or use another DATA_DIR.`)
    await pause(predecessorPauseMs)
  }
  await unlink(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOENT') throw error
  })
}

async function answers(path: string): Promise<boolean> {
  const socket = connect(path)
  try {
    await once(socket, 'connect')
    return true
  } catch {
    return false
  } finally {
    socket.destroy()
  }
}
