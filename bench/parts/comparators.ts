import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { type AddressInfo, connect, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { startChild } from './child.ts'
import type { PassThroughSettings } from './pass-through.ts'
import { cpuMs, familyCpuMs, memoryKiB } from './process-usage.ts'

/** Something that requests can be sent through, and what it has used. */
export type Subject = {
  readonly name: string
  /** Ends in /v1 or its like; `/chat/completions` follows. */
  readonly baseUrl: string
  /** For each connection its own, in turn. */
  readonly headers: readonly Readonly<Record<string, string>>[]
  /** CPU so far, in milliseconds, by process. The first is the one that faces the client. */
  cpu(): Readonly<Record<string, number>>
  memoryKiB(): number
  /** Resolves when nothing of what was asked is still being worked on. */
  settled(): Promise<void>
  stop(): Promise<void>
}

export const portkeyVersion = '1.15.2'
const readyMsMax = 60_000

const quiet = { headers: [{}], settled: () => Promise.resolve() }

export function direct(origin: string): Subject {
  return {
    ...quiet,
    name: 'direct',
    baseUrl: `${origin}/v1`,
    cpu: () => ({}),
    memoryKiB: () => 0,
    stop: () => Promise.resolve(),
  }
}

export async function startPassThrough(origin: string): Promise<Subject> {
  const module = new URL('./pass-through.ts', import.meta.url)
  const child = await startChild<PassThroughSettings, { origin: string }>(module, { upstream: origin })
  return {
    ...quiet,
    name: 'bare Node pass-through',
    baseUrl: `${child.ready.origin}/v1`,
    cpu: () => ({ web: cpuMs(child.pid) }),
    memoryKiB: () => memoryKiB(child.pid),
    stop: () => child.stop(),
  }
}

/** One worker, as the others have one. Undefined where nginx is not installed. */
export async function startNginx(origin: string): Promise<Subject | undefined> {
  if (!isInstalled('nginx')) return undefined
  const folder = mkdtempSync(join(tmpdir(), 'penny-bench-nginx-'))
  const port = await freePort()
  writeFileSync(join(folder, 'nginx.conf'), nginxConfiguration(folder, port, new URL(origin).host))
  const child = spawn('nginx', ['-p', folder, '-c', join(folder, 'nginx.conf')], {
    stdio: ['ignore', 'ignore', 'inherit'],
  })
  await untilListening(port)
  return {
    ...quiet,
    name: 'nginx',
    baseUrl: `http://127.0.0.1:${port}/v1`,
    cpu: () => ({ web: familyCpuMs(child.pid!) }),
    memoryKiB: () => memoryKiB(child.pid!),
    async stop() {
      await end(child)
      rmSync(folder, { recursive: true, force: true })
    },
  }
}

function nginxConfiguration(folder: string, port: number, upstream: string): string {
  return `daemon off; worker_processes 1; pid ${folder}/nginx.pid; error_log ${folder}/error.log;
events { worker_connections 16384; }
http {
  access_log off; keepalive_requests 100000000; client_body_temp_path ${folder}/body; proxy_temp_path ${folder}/proxy;
  fastcgi_temp_path ${folder}/fastcgi; uwsgi_temp_path ${folder}/uwsgi; scgi_temp_path ${folder}/scgi;
  upstream mock { server ${upstream}; keepalive 512; keepalive_requests 100000000; }
  server {
    listen 127.0.0.1:${port};
    location / { proxy_pass http://mock; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; }
  }
}
`
}

/** The most used gateway of this kind in Node: it translates and routes, and neither meters nor bills. Undefined when offline. */
export async function startPortkey(origin: string): Promise<Subject | undefined> {
  const folder = await installPortkey()
  if (folder === undefined) return undefined
  const port = await freePort()
  const file = join(folder, 'node_modules', '@portkey-ai', 'gateway', 'build', 'start-server.js')
  const child = spawn(process.execPath, [file, '--headless', `--port=${port}`], {
    stdio: ['ignore', 'ignore', 'inherit'],
    env: { ...process.env, NODE_ENV: 'production', TRUSTED_CUSTOM_HOSTS: '127.0.0.1' },
  })
  await untilListening(port)
  return {
    ...quiet,
    name: 'Portkey gateway',
    baseUrl: `http://127.0.0.1:${port}/v1`,
    headers: [
      { authorization: 'Bearer none', 'x-portkey-provider': 'openai', 'x-portkey-custom-host': `${origin}/v1` },
    ],
    cpu: () => ({ web: cpuMs(child.pid!) }),
    memoryKiB: () => memoryKiB(child.pid!),
    stop: () => end(child),
  }
}

/** Kept between runs in a folder of its own: it is no dependency of ours. */
async function installPortkey(): Promise<string | undefined> {
  const folder = join(tmpdir(), `penny-bench-portkey-${portkeyVersion}`)
  if (existsSync(join(folder, 'node_modules', '@portkey-ai', 'gateway'))) return folder
  mkdirSync(folder, { recursive: true })
  writeFileSync(join(folder, 'package.json'), '{"private":true}')
  const npm = process.env.npm_execpath
  const [program, first] = npm === undefined ? ['npm', []] : [process.execPath, [npm]]
  const flags = ['install', '--ignore-scripts', '--no-audit', '--no-fund', `@portkey-ai/gateway@${portkeyVersion}`]
  const child = spawn(program, [...first, ...flags], { cwd: folder, stdio: 'ignore', timeout: 180_000 })
  const [code] = (await once(child, 'exit').catch(() => [1])) as [number | null]
  return code === 0 ? folder : undefined
}

function isInstalled(program: string): boolean {
  try {
    execFileSync(program, ['-v'], { stdio: 'ignore' })
    return true
  } catch {
    return false
  }
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  server.close()
  await once(server, 'close')
  return port
}

async function untilListening(port: number): Promise<void> {
  const deadline = performance.now() + readyMsMax
  for (;;) {
    const socket = connect(port, '127.0.0.1')
    const isOpen = await once(socket, 'connect').then(
      () => true,
      () => false,
    )
    socket.destroy()
    if (isOpen) return
    if (performance.now() > deadline) throw new Error(`nothing listens on port ${port}`)
    await sleep(50)
  }
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const exited = once(child, 'exit')
  child.kill('SIGTERM')
  await exited
}
