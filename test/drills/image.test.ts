import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, realpathSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { drill, isWhole } from './drill.ts'
import { findEngine, runProgram } from './engine.ts'

// deploy/Dockerfile, built without a registry of images: its base is made here, from Debian's packages and the Node that runs this.

const root = fileURLToPath(new URL('../..', import.meta.url))
const base = 'docker.io/library/node:26.10.0-bookworm-slim'
const buildMsMax = 12 * 60_000
const mbMax = 700
/** Of this machine: npm may need them to reach its registry. */
const certificates = ['-v', '/etc/ssl/certs:/etc/ssl/certs:ro']
const engine = { name: 'Buildah', program: 'buildah', package: 'buildah', versionFlag: '--version' }
const debootstrap = { name: 'debootstrap', program: 'debootstrap', package: 'debootstrap', versionFlag: '--version' }

drill({
  engine,
  tried: 'the image built from deploy/Dockerfile',
  ...unusable(),
  async run({ path }) {
    const folder = mkdtempSync(join(tmpdir(), 'penny-image-'))
    try {
      const image = new Images(path, folder)
      image.makeBase()
      const context = join(folder, 'context')
      mkdirSync(context)
      execFileSync('sh', ['-c', `git archive HEAD | tar x -C '${context}'`], { cwd: root })
      image.run(
        ['bud', '--pull-never', '--format', 'docker', '--network', 'host', ...certificates, '-t', 'penny'],
        ['-f', join(root, 'deploy/Dockerfile'), '--ignorefile', join(root, 'deploy/Dockerfile.dockerignore'), context],
      )
      const [size, baseSize] = [image.sizeOf('penny'), image.sizeOf(base)]
      assert.ok(size < mbMax, `${size} MB`)
      const container = image.run(['from', '--pull-never', 'penny']).trim()
      const version = image.run(['run', container, '--', 'node', '/app/src/main.ts', '--version']).trim()
      assert.match(version, /^penny \d/)
      return `${size} MB, of which ${baseSize} MB are Debian and Node; ${version} runs in it`
    } finally {
      rmSync(folder, { recursive: true, force: true })
    }
  },
})

function unusable(): { readonly problem?: string } {
  if (!isWhole) return { problem: 'it takes minutes; npm run drill -- image builds it' }
  if (process.getuid?.() !== 0) return { problem: 'only root can make the base of the image' }
  const found = findEngine(debootstrap, { mayInstall: true })
  return typeof found === 'string' ? { problem: found } : {}
}

class Images {
  readonly #program: string
  readonly #folder: string

  constructor(program: string, folder: string) {
    this.#program = program
    this.#folder = folder
  }

  run(...args: readonly (readonly string[])[]): string {
    const places = ['--root', join(this.#folder, 'storage'), '--runroot', join(this.#folder, 'run')]
    // Neither needs anything of the kernel that a container does not have itself.
    const env = { ...process.env, STORAGE_DRIVER: 'vfs', BUILDAH_ISOLATION: 'chroot' }
    return execFileSync(this.#program, [...places, ...args.flat()], {
      env,
      encoding: 'utf8',
      stdio: 'pipe',
      timeout: buildMsMax,
      maxBuffer: 64 * 1024 * 1024,
    })
  }

  /** In megabytes. */
  sizeOf(name: string): number {
    const [image] = JSON.parse(this.run(['images', '--json', name])) as [{ readonly size: string }]
    return Number.parseFloat(image.size) * (/GB/.test(image.size) ? 1000 : 1)
  }

  /** Debian and Node, under the name that the Dockerfile begins with. */
  makeBase(): void {
    const system = join(this.#folder, 'system')
    const found = findEngine(debootstrap, { mayInstall: true })
    if (typeof found === 'string') throw new Error(found)
    runProgram(found.path, ['--variant=minbase', '--include=libatomic1,libstdc++6', 'bookworm', system], buildMsMax)
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
    const container = this.run(['from', 'scratch']).trim()
    this.run(['add', container, system, '/'])
    this.run(['commit', container, base])
  }
}
