import assert from 'node:assert/strict'
import { execFileSync, spawnSync } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, realpathSync, rmSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { readSandboxFile } from '../../src/commands/sandbox-file.ts'
import { until } from '../support/until.ts'
import { drill, isWhole, type Step } from './drill.ts'
import { findEngine, runProgram } from './engine.ts'
import { freePort } from './free-port.ts'
import { type ImageConfig, runContainer } from './oci-container.ts'

// deploy/Dockerfile, built without a registry of images: its base is made here, from Debian's packages and the Node that runs this.

const root = fileURLToPath(new URL('../..', import.meta.url))
const base = 'docker.io/library/node:26.10.0-bookworm-slim'
const buildMsMax = 12 * 60_000
/** Of the smaller image, with its base. */
const mbMax = 450
/** Of this machine: npm may need them to reach its registry. */
const certificates = ['-v', '/etc/ssl/certs:/etc/ssl/certs:ro']
const engine = { name: 'Buildah', program: 'buildah', package: 'buildah', version: '--version' }
const debootstrap = { name: 'debootstrap', program: 'debootstrap', package: 'debootstrap', version: '--version' }
const runc = { name: 'runc', program: 'runc', package: 'runc', version: '--version' }

drill({
  engine,
  tried: 'both images of deploy/Dockerfile built; run read-only, asked, stopped',
  ...unusable(),
  async run({ path }, step) {
    await using stack = new AsyncDisposableStack()
    // Gigabytes: not in the temporary folder of the tests, which is memory.
    const folder = mkdtempSync('/var/tmp/penny-image-')
    stack.defer(() => void execFileSync('rm', ['-rf', folder]))
    const images = new Images(path, folder)
    step('the base: Debian by debootstrap, and Node')
    images.makeBase()
    const context = join(folder, 'context')
    mkdirSync(context)
    execFileSync(
      'sh',
      ['-c', `git ls-files -z --cached --others --exclude-standard | tar c --null -T - | tar x -C '${context}'`],
      {
        cwd: root,
      },
    )
    for (const target of ['runtime', 'service', 'sandbox']) {
      step(`build ${target}`)
      images.build(target, context)
    }
    const [baseMb, systemMb, serviceMb, sandboxMb] = [base, 'runtime', 'service', 'sandbox'].map((name) =>
      images.megabytesOf(name),
    )
    const container = { program: enginePath(runc), folder, step }
    step('run service')
    await tryService({ ...container, ...images.mount('service', stack) })
    step('run sandbox')
    const answer = await trySandbox({ ...container, ...images.mount('sandbox', stack) })
    assert.ok(serviceMb! < mbMax, `${serviceMb} MB`)
    return `service ${serviceMb} MB, sandbox ${sandboxMb} MB, each with ${systemMb} MB of Debian and Node (base ${baseMb} MB); ${answer}`
  },
})

type Tried = {
  readonly program: string
  readonly folder: string
  readonly rootfs: string
  readonly config: ImageConfig
  readonly step: Step
}

/** Without a configured chain it refuses to start and says what to do. Its commands work. */
async function tryService({ program, folder, rootfs, config }: Tried): Promise<void> {
  const data = join(folder, 'service-data')
  const version = await runContainer({ program, rootfs, config, data, command: ['--version'] })
  assert.deepEqual([(await version.exited).code, /^penny \d/.test(version.output())], [0, true], version.output())
  const start = await runContainer({ program, rootfs, config, data, environment: { HOST: '127.0.0.1', PORT: '0' } })
  assert.equal((await start.exited).code, 1)
  assert.match(start.output(), /^penny: The chain of the sandbox is not installed.*--target sandbox/m)
}

/** @returns what was seen, for the table */
async function trySandbox({ program, folder, rootfs, config, step }: Tried): Promise<string> {
  const data = join(folder, 'sandbox-data')
  const port = await freePort()
  const container = await runContainer({
    program,
    rootfs,
    config,
    data,
    environment: { HOST: '127.0.0.1', PORT: String(port), SHUTDOWN_DELAY_MS: '0' },
  })
  try {
    const url = `http://127.0.0.1:${port}`
    await Promise.race([
      until(async () => (await fetch(`${url}/readyz`).catch(() => undefined))?.ok === true),
      container.exited.then(() => assert.fail(container.output())),
    ])
    container.exec(config.Healthcheck.Test.slice(1))
    step('ready, and healthy by its own check')
    await until(() => readSandboxFile(data) !== undefined)
    const { api_key: key } = readSandboxFile(data)!
    const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' }
    const models = (await (await fetch(`${url}/v1/models`, { headers })).json()) as { data: { id: string }[] }
    const response = await fetch(`${url}/v1/chat/completions`, {
      method: 'POST',
      headers,
      body: JSON.stringify({
        model: models.data[0]!.id,
        messages: [{ role: 'user', content: 'How are requests billed?' }],
      }),
    })
    const text = await response.text()
    assert.equal(response.status, 200, text)
    const charged = Number(response.headers.get('x-router-charged-usdc'))
    assert.ok(charged > 0)
    step('answered a completion')
    assert.match(container.exec(['penny', 'audit']), /./)
    assert.throws(() => container.exec(['touch', '/app/written']), /Read-only file system/)
    assert.ok(!container.output().includes(key), 'the API key is not in the log')
    container.kill('SIGTERM')
    assert.deepEqual(await container.exited, { code: 0 }, container.output())
    return `read-only as user ${config.User}: healthy, a completion (charged ${charged}), penny audit, stopped by SIGTERM with exit code 0`
  } finally {
    container.kill('SIGKILL')
    await container.exited
  }
}

function unusable(): { readonly problem?: string } {
  if (!isWhole) return { problem: 'it takes minutes; npm run drill -- image builds it' }
  if (process.getuid?.() !== 0) return { problem: 'only root can make the base of the image' }
  const problem = [debootstrap, runc]
    .map((each) => findEngine(each, { mayInstall: true }))
    .find((found) => typeof found === 'string')
  return problem === undefined ? {} : { problem }
}

function enginePath(wanted: typeof engine): string {
  const found = findEngine(wanted, { mayInstall: true })
  if (typeof found === 'string') throw new Error(found)
  return found.path
}

class Images {
  readonly #program: string
  readonly #folder: string
  readonly #driver: 'overlay' | 'vfs'

  constructor(program: string, folder: string) {
    this.#program = program
    this.#folder = folder
    // Within a container only the other one works, which copies every layer.
    this.#driver =
      spawnSync(program, [...this.#places, 'info'], { env: this.#environment('overlay') }).status === 0
        ? 'overlay'
        : 'vfs'
  }

  build(target: string, context: string): void {
    this.#run(
      [
        'bud',
        '--layers',
        '--pull-never',
        '--format',
        'docker',
        '--network',
        'host',
        ...certificates,
        '--target',
        target,
        '-t',
        target,
      ],
      [
        '-f',
        join(context, 'deploy/Dockerfile'),
        '--ignorefile',
        join(context, 'deploy/Dockerfile.dockerignore'),
        context,
      ],
    )
  }

  megabytesOf(name: string): number {
    const [image] = JSON.parse(this.#run(['images', '--json', name])) as [{ readonly size: string }]
    return Number.parseFloat(image.size) * (/GB/.test(image.size) ? 1000 : 1)
  }

  /** The image's files and what it says about running them. */
  mount(name: string, stack: AsyncDisposableStack): { readonly rootfs: string; readonly config: ImageConfig } {
    const container = this.#run(['from', '--pull-never', name]).trim()
    const rootfs = this.#run(['mount', container]).trim()
    stack.defer(() => void this.#run(['rm', container]))
    const { Docker } = JSON.parse(this.#run(['inspect', '--type', 'image', name])) as {
      Docker: { config: ImageConfig }
    }
    return { rootfs, config: Docker.config }
  }

  /** Debian and Node, under the name that the Dockerfile begins with. */
  makeBase(): void {
    const system = join(this.#folder, 'system')
    runProgram(
      enginePath(debootstrap),
      ['--variant=minbase', '--include=libatomic1,libstdc++6', 'bookworm', system],
      buildMsMax,
    )
    for (const place of [
      'var/cache/apt/archives',
      'var/lib/apt/lists',
      'usr/share/doc',
      'usr/share/man',
      'usr/share/locale',
    ])
      rmSync(join(system, place), { recursive: true, force: true })
    mkdirSync(join(system, 'usr/local/lib/node_modules'), { recursive: true })
    cpSync(process.execPath, join(system, 'usr/local/bin/node'))
    const npm = execFileSync('sh', ['-c', 'command -v npm'], { encoding: 'utf8' }).trim()
    cpSync(dirname(dirname(realpathSync(npm))), join(system, 'usr/local/lib/node_modules/npm'), { recursive: true })
    execFileSync('ln', ['-s', '../lib/node_modules/npm/bin/npm-cli.js', join(system, 'usr/local/bin/npm')])
    const container = this.#run(['from', 'scratch']).trim()
    this.#run(['add', container, system, '/'])
    // Not a part of the images: they do not begin with this base.
    const authorities = process.env.NODE_EXTRA_CA_CERTS
    if (authorities !== undefined) this.#run(['config', '--env', `NODE_EXTRA_CA_CERTS=${authorities}`, container])
    this.#run(['commit', '--rm', container, base])
    rmSync(system, { recursive: true, force: true })
  }

  get #places(): readonly string[] {
    return ['--root', join(this.#folder, 'storage'), '--runroot', join(this.#folder, 'run')]
  }

  #environment(driver: string): NodeJS.ProcessEnv {
    // chroot needs nothing of the kernel that a container does not have itself.
    return { ...process.env, STORAGE_DRIVER: driver, BUILDAH_ISOLATION: 'chroot' }
  }

  #run(...args: readonly (readonly string[])[]): string {
    return execFileSync(this.#program, [...this.#places, ...args.flat()], {
      env: this.#environment(this.#driver),
      encoding: 'utf8',
      stdio: 'pipe',
      timeout: buildMsMax,
      maxBuffer: 64 * 1024 * 1024,
    })
  }
}
