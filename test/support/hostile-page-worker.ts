import { answerQuestion } from '../../src/tools/page-channel.ts'

// Replaces page-worker.ts as if a page had taken over the parser: obeys the page. Only tests start it.

type Order = {
  readonly do: 'attack' | 'echo' | 'hang' | 'wait' | 'crash' | 'exit' | 'babble' | 'flood' | 'lie' | 'stall' | 'linger'
  readonly targets?: Targets
}

export type Targets = { readonly socket: string; readonly port: number; readonly file: string; readonly folder: string }

const loadMs = 3_500

answerQuestion(async (kind) => {
  // A PDF simulates code that takes long to load.
  if (kind === 'pdf') await new Promise((resolve) => setTimeout(resolve, loadMs))
  return async ({ body }) => {
    const order = JSON.parse(Buffer.from(body).toString()) as Order
    return { title: undefined, text: await obey(order), truncated: false }
  }
})

async function obey({ do: what, targets }: Order): Promise<string> {
  switch (what) {
    case 'attack':
      return JSON.stringify(await attack(targets!))
    case 'stall':
      // The parent has already started the read timeout.
      process.stdout.write('{"reading":true}\n')
      return 'done'
    case 'hang':
      for (;;);
    case 'wait':
      return new Promise(() => {})
    case 'crash':
      return process.abort()
    case 'exit':
      return process.exit(0)
    case 'babble':
      process.stdout.write('hello\n')
      return 'never read'
    case 'flood':
      process.stdout.write('x'.repeat(1_000_000))
      return new Promise(() => {})
    case 'lie':
      process.stdout.write(`${JSON.stringify({ page: { title: 1, text: {}, truncated: 'no' } })}\n`)
      return new Promise(() => {})
    case 'linger':
      setTimeout(() => process.stdout.write(`${JSON.stringify({ page: { text: 'forged', truncated: false } })}\n`), 50)
      return 'done'
    default:
      return String(process.pid)
  }
}

/** By attempt: the code of the error, or `succeeded`. */
async function attack({ socket, port, file, folder }: Targets): Promise<Record<string, unknown>> {
  const fs = await import('node:fs')
  const net = await import('node:net')
  const { createSocket } = await import('node:dgram')
  const { spawnSync, fork } = await import('node:child_process')
  const { Worker } = await import('node:worker_threads')
  const { lookup } = await import('node:dns/promises')
  const { get } = await import('node:http')
  const event = (make: () => NodeJS.EventEmitter, name: string) =>
    new Promise((resolve, reject) => make().once(name, resolve).on('error', reject))
  const attempts: Record<string, () => unknown> = {
    readPasswords: () => fs.readFileSync('/etc/passwd'),
    readEnvironment: () => fs.readFileSync(`/proc/${process.ppid}/environ`),
    readFile: () => fs.readFileSync(file),
    listFolder: () => fs.readdirSync(folder),
    writeFile: () => fs.writeFileSync(`${folder}/written`, 'x'),
    writeCode: () => fs.writeFileSync(new URL('./written.ts', import.meta.url), 'x'),
    linkFile: () => fs.symlinkSync(file, `${folder}/link`),
    connectSocket: () => event(() => net.connect(socket), 'connect'),
    connectPort: () => event(() => net.connect(port, '127.0.0.1'), 'connect'),
    http: () => event(() => get({ port, host: '127.0.0.1' }), 'response'),
    fetch: () => fetch(`http://127.0.0.1:${port}/`).catch((error: Error) => Promise.reject(error.cause)),
    listen: () => event(() => net.createServer().listen(`${folder}/listening`), 'listening'),
    datagram: () => event(() => createSocket('udp4').bind(0, '127.0.0.1'), 'listening'),
    lookUp: () => lookup('localhost'),
    run: () => throwing(spawnSync('/bin/true').error),
    fork: () => fork(new URL(import.meta.url)),
    thread: () => new Worker('1', { eval: true }),
    addon: () => process.dlopen({ exports: {} }, `${folder}/addon.node`),
    compile: () => new Function('return 1')(),
    signal: () => process.kill(process.ppid, 0),
  }
  const outcomes: Record<string, unknown> = { environment: { ...process.env }, sockets: openSockets(fs) }
  for (const [name, attempt] of Object.entries(attempts)) {
    try {
      await attempt()
      outcomes[name] = 'succeeded'
    } catch (error) {
      outcomes[name] = (error as NodeJS.ErrnoException | undefined)?.code ?? (error as Error).name
    }
  }
  return outcomes
}

function throwing(error: Error | undefined): void {
  if (error !== undefined) throw error
}

function openSockets(fs: typeof import('node:fs')): readonly number[] {
  const isSocket = (descriptor: number) => {
    try {
      return fs.fstatSync(descriptor).isSocket()
    } catch {
      return false
    }
  }
  return Array.from({ length: 100 }, (_, descriptor) => descriptor).filter(isSocket)
}
