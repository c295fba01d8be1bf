import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chownSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

/** What an image says about running it, as Docker writes it. */
export type ImageConfig = {
  readonly User: string
  readonly Env: readonly string[]
  readonly Entrypoint: readonly string[]
  readonly Cmd: readonly string[]
  readonly WorkingDir: string
  readonly Healthcheck: { readonly Test: readonly string[] }
}

export type ContainerOptions = {
  /** runc: crun refuses machines whose cgroups are of both versions. */
  readonly program: string
  readonly rootfs: string
  readonly config: ImageConfig
  /** The folder of this machine behind the image's volume; made when it is missing. */
  readonly data: string
  readonly environment?: Readonly<Record<string, string>>
  /** In place of the image's own. */
  readonly command?: readonly string[]
}

export type Container = {
  readonly exited: Promise<{ readonly code: number | null }>
  output(): string
  /** A command beside the service, as `docker exec`. @throws with its output when it fails */
  exec(command: readonly string[]): string
  /** Does nothing when it has ended. */
  kill(signal: NodeJS.Signals): void
}

const volume = '/var/lib/penny'
const execMsMax = 60_000

/** As `docker run --read-only --tmpfs /tmp --cap-drop ALL --network host -v DATA:/var/lib/penny` does it. */
export async function runContainer({
  program,
  rootfs,
  config,
  data,
  environment = {},
  command,
}: ContainerOptions): Promise<Container> {
  const bundle = mkdtempSync(join(tmpdir(), 'penny-bundle-'))
  const state = join(bundle, 'state')
  const [uid, gid] = config.User.split(':').map(Number) as [number, number]
  mkdirSync(data, { recursive: true })
  chownSync(data, uid, gid)
  const set = Object.entries(environment)
  const specification = {
    ociVersion: '1.0.0',
    root: { path: rootfs, readonly: true },
    process: {
      user: { uid, gid },
      cwd: config.WorkingDir,
      args: [...config.Entrypoint, ...(command ?? config.Cmd)],
      env: [...config.Env, ...set.map(([name, value]) => `${name}=${value}`)],
      noNewPrivileges: true,
    },
    mounts: [
      { destination: '/proc', type: 'proc', source: 'proc' },
      { destination: '/dev', type: 'tmpfs', source: 'tmpfs', options: ['nosuid', 'mode=755'] },
      { destination: '/dev/shm', type: 'tmpfs', source: 'shm', options: ['nosuid', 'nodev', 'mode=1777'] },
      { destination: '/tmp', type: 'tmpfs', source: 'tmpfs', options: ['nosuid', 'nodev', 'mode=1777'] },
      { destination: volume, type: 'bind', source: data, options: ['rbind', 'rw'] },
    ],
    linux: { namespaces: ['pid', 'mount', 'ipc', 'uts'].map((type) => ({ type })) },
  }
  writeFileSync(join(bundle, 'config.json'), JSON.stringify(specification))
  const id = 'penny'
  const flags = ['--root', state]
  const child = spawn(program, [...flags, 'run', '--bundle', bundle, id], { stdio: ['ignore', 'pipe', 'pipe'] })
  let said = ''
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (text) => {
      said += text
    })
  const exited = (once(child, 'close') as Promise<[number | null]>).then(([code]) => {
    rmSync(bundle, { recursive: true, force: true })
    return { code }
  })
  await once(child, 'spawn')
  return {
    exited,
    output: () => said,
    exec: (words) =>
      execFileSync(program, [...flags, 'exec', id, ...words], { encoding: 'utf8', stdio: 'pipe', timeout: execMsMax }),
    kill(signal) {
      if (child.exitCode === null && child.signalCode === null) execFileSync(program, [...flags, 'kill', id, signal])
    },
  }
}
