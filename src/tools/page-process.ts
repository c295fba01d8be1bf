import { type ChildProcessByStdio, execFile, spawn } from 'node:child_process'
import { readFileSync, realpathSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { findPackageJSON } from 'node:module'
import { dirname, join } from 'node:path'
import type { Readable, Writable } from 'node:stream'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { answerBytesMax, decodeAnswer, encodeQuestion, type ReadAnswer, type ReadQuestion } from './page-channel.ts'

export type PageProcessLimits = {
  /** For starting the process, loading its code and sending the page. */
  readonly startMsMax: number
  /** For parsing the page only. */
  readonly readMsMax: number
  readonly heapMegabytesMax: number
  /** Memory outside the heap, for example the decompressed streams of a PDF. */
  readonly buffersBytesMax: number
}

const memoryCheckMs = 50
/** Memory of Node itself and of the parsers' code. */
const processBytes = 128 * 1024 * 1024
const mebibyte = 1024 * 1024

/**
 * A child process that parses one page and ends. The pipes of standard input and output are its only connections to the service.
 * The permission model denies it network, sockets, files, processes, threads and addons, and its environment is empty. A page that
 * exploits the parser therefore reaches no secret, and no page of another customer: no process reads a second one.
 */
export class PageProcess {
  readonly #limits: PageProcessLimits
  readonly #child: ChildProcessByStdio<Writable, Readable, null>
  readonly #exited = Promise.withResolvers<void>()
  #hasExited = false
  #isKilled = false
  #onOutput: (chunk: Buffer) => void

  /** Throws when the process cannot be started. */
  constructor(module: URL, limits: PageProcessLimits) {
    this.#limits = limits
    const file = realpathSync(fileURLToPath(module))
    this.#child = spawn(process.execPath, [...flags(limits, file), file], {
      stdio: ['pipe', 'pipe', 'ignore'],
      env: {},
      cwd: dirname(file),
      // A Ctrl-C at the service must not kill children whose pages are needed by requests in flight.
      detached: true,
    })
    const exit = () => {
      this.#hasExited = true
      this.#exited.resolve()
    }
    this.#child.on('exit', exit)
    this.#child.on('error', exit)
    // With too many open files the child has no pipes, the error comes later as an event, and `kill` would kill our process group.
    if (this.#child.pid === undefined) throw new Error('The process that parses pages could not be started.')
    // Output without a question: the child does not run our code as intended.
    this.#onOutput = () => this.kill()
    this.#child.stdout.on('data', (chunk: Buffer) => this.#onOutput(chunk))
    this.#child.stdin.on('error', () => {})
    this.#keepAlive(false)
  }

  /** Resolves once the process has exited. */
  get exited(): Promise<void> {
    return this.#exited.promise
  }

  /** False from `kill` on, even while the process is still running. Every process is killed after its page. */
  get isUsable(): boolean {
    return !this.#isKilled && !this.#hasExited
  }

  kill(): void {
    // An unused process is unreferenced; the event loop must stay alive until `exited`.
    this.#child.ref()
    this.#isKilled = true
    this.#child.kill('SIGKILL')
  }

  /** Asks once, and ends the process. Returns undefined when the process exited or was killed at a limit. */
  async ask(question: ReadQuestion): Promise<Exclude<ReadAnswer, { reading: true }> | undefined> {
    this.#keepAlive(true)
    const stopped = new AbortController()
    let limit = setTimeout(() => this.kill(), this.#limits.startMsMax)
    let isReading = false
    const answered = Promise.withResolvers<Exclude<ReadAnswer, { reading: true }>>()
    this.#onOutput = lines(answerBytesMax(question), (line) => {
      // Ignore what the child sent after its violation and before it died.
      if (this.#isKilled) return
      const answer = line === undefined ? undefined : decodeAnswer(line, question)
      if (answer === undefined) return this.kill()
      if (!('reading' in answer)) return answered.resolve(answer)
      // A second one would restart the timeout.
      if (isReading) return this.kill()
      isReading = true
      clearTimeout(limit)
      limit = setTimeout(() => this.kill(), this.#limits.readMsMax)
    })
    void this.#watchMemory(stopped.signal)
    this.#child.stdin.write(encodeQuestion(question))
    this.#child.stdin.write(question.body)
    const answer = await Promise.race([answered.promise, this.exited.then(() => undefined)])
    clearTimeout(limit)
    stopped.abort()
    this.kill()
    return answer
  }

  /** An unused child must not keep the service's event loop alive. */
  #keepAlive(isNeeded: boolean): void {
    for (const part of [this.#child, this.#child.stdin, this.#child.stdout] as unknown as NodeJS.Timeout[]) {
      if (isNeeded) part.ref()
      else part.unref()
    }
  }

  /** V8 limits the heap. Nothing else limits the buffers outside it. */
  async #watchMemory(signal: AbortSignal): Promise<void> {
    const { heapMegabytesMax, buffersBytesMax } = this.#limits
    const bytesMax = processBytes + heapMegabytesMax * mebibyte + buffersBytesMax
    while (!signal.aborted && !this.#hasExited) {
      if ((await residentBytes(this.#child.pid)) > bytesMax) this.kill()
      await new Promise((resolve) => setTimeout(resolve, memoryCheckMs).unref())
    }
  }
}

/** Calls `onLine` with each line, or with undefined when an unfinished line exceeds `bytesMax` bytes. */
function lines(bytesMax: number, onLine: (line: string | undefined) => void): (chunk: Buffer) => void {
  let rest = Buffer.alloc(0)
  return (chunk) => {
    rest = Buffer.concat([rest, chunk])
    for (let end = rest.indexOf('\n'); end !== -1; end = rest.indexOf('\n')) {
      const line = rest.toString('utf8', 0, end)
      rest = rest.subarray(end + 1)
      onLine(line)
    }
    if (rest.length > bytesMax) onLine(undefined)
  }
}

function flags({ heapMegabytesMax }: PageProcessLimits, main: string): string[] {
  return [
    '--permission',
    ...readablePaths(main).map((path) => `--allow-fs-read=${path}`),
    `--max-old-space-size=${heapMegabytesMax}`,
    '--max-semi-space-size=32',
    '--disallow-code-generation-from-strings',
    '--no-warnings',
  ]
}

/**
 * Allows only the code that the child loads. Node compares permissions with paths as written: where packages are linked into
 * node_modules, both the link and its target must be allowed.
 */
function readablePaths(main: string): readonly string[] {
  const here = realpathSync(fileURLToPath(import.meta.url))
  const packages = ['parse5', 'unpdf'].flatMap((name) => manifestsOf(name, here))
  const folders = [main, here, ...packages, ...packages.map((path) => realpathSync(path))].map((path) =>
    join(dirname(path), '*'),
  )
  const ownPackage = findPackageJSON('..', here)
  return [...new Set([...folders, ...(ownPackage === undefined ? [] : [ownPackage])])]
}

/** The manifests of a package and of its dependencies, recursively. */
function manifestsOf(name: string, from: string): string[] {
  const manifest = findPackageJSON(name, from)!
  const { dependencies = {} } = JSON.parse(readFileSync(manifest, 'utf8')) as { dependencies?: object }
  return [manifest, ...Object.keys(dependencies).flatMap((needed) => manifestsOf(needed, realpathSync(manifest)))]
}

/** Read from outside: the process may be too busy to answer. 0 when it has exited. */
async function residentBytes(pid: number | undefined): Promise<number> {
  try {
    if (process.platform === 'linux') {
      const status = await readFile(`/proc/${pid}/status`, 'utf8')
      return Number(/^VmRSS:\s+(\d+) kB/m.exec(status)?.[1] ?? 0) * 1024
    }
    const { stdout } = await promisify(execFile)('ps', ['-o', 'rss=', '-p', String(pid)])
    return Number(stdout.trim()) * 1024
  } catch {
    return 0
  }
}
