import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmdirSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { until } from '../support/until.ts'

// A machine of its own for one unit: systemd as process 1 in new namespaces. /etc and /var are layers above the real ones that
// disappear with it, and its network has nothing but a loopback interface. It has a /dev/shm of its own, where the unit's RemoveIPC=yes
// deletes whatever the service's user owns when the service ends: the layers must not be in `TMPDIR`, which may be there too.

const root = fileURLToPath(new URL('../..', import.meta.url))
const commandMsMax = 180_000
/** Where the layers lie: the only mount that has to exist before. */
const layers = 'layers'
/** Units that every unit depends on, without what a whole machine would start with them. */
const emptyTargets = ['sysinit', 'basic', 'shutdown', 'network-online', 'multi-user', 'drill']
const cgroupRoots = ['/sys/fs/cgroup/unified', '/sys/fs/cgroup']

export type Machine = {
  /** What `systemctl` says, whatever its exit code. */
  systemctl(...args: readonly string[]): string
  /** Runs a program inside. @throws when it fails */
  run(program: string, ...args: readonly string[]): string
  /** Everything that systemd and its units have printed. */
  output(): string
  stop(): Promise<void>
}

/** Why no such machine can be made here; undefined when it can. */
export function machineProblem(): string | undefined {
  if (process.platform !== 'linux' || process.getuid?.() !== 0) return 'only root on Linux can make namespaces'
  if (cgroupRoot() === undefined) return 'there is no cgroup2 file system'
  const args = ['--cgroup', '--pid', '--mount', '--uts', '--ipc', '--net', '--fork', 'true']
  return spawnSync('unshare', args).status === 0 ? undefined : 'this machine does not allow new namespaces'
}

/** Starts systemd with these files in /etc. The repository is at /opt/penny, and this Node at /opt/node/bin/node. */
export async function startMachine(files: Readonly<Record<string, string>>): Promise<Machine> {
  const place = mkdtempSync('/tmp/penny-systemd-')
  const cgroup = join(cgroupRoot()!, `penny-drill-${process.pid}`)
  mkdirSync(join(place, layers))
  mkdirSync(join(place, 'files'))
  const units = emptyTargets.map((name) => [`systemd/system/${name}.target`, target(name)] as const)
  for (const [path, text] of [...units, ...Object.entries(files)]) {
    const file = join(place, 'files', path)
    mkdirSync(dirname(file), { recursive: true })
    writeFileSync(file, text)
  }
  writeFileSync(join(place, 'boot.sh'), bootScript(place, cgroup))
  const outside = spawn('bash', [join(place, 'boot.sh')], { stdio: ['ignore', 'pipe', 'pipe'], detached: true })
  let said = ''
  for (const stream of [outside.stdout, outside.stderr]) stream.on('data', (chunk) => (said += chunk))
  const init = await until(() => initOf(outside, said))
  // The first process of a pid namespace takes all others with it. A run that breaks off leaves nothing behind.
  const abandon = () => void process.kill(init, 'SIGKILL')
  process.once('exit', abandon)
  const enter = ['-t', String(init), '-m', '-u', '-i', '-n', '-p', '--']
  const machine: Machine = {
    systemctl: (...args) =>
      spawnSync('nsenter', [...enter, 'systemctl', ...args], { encoding: 'utf8', timeout: commandMsMax }).stdout.trim(),
    run: (program, ...args) =>
      execFileSync('nsenter', [...enter, program, ...args], { encoding: 'utf8', stdio: 'pipe', timeout: commandMsMax }),
    output: () => said,
    async stop() {
      process.off('exit', abandon)
      abandon()
      await until(() => outside.exitCode !== null || outside.signalCode !== null)
      removeCgroups(cgroup)
      rmSync(place, { recursive: true, force: true })
    },
  }
  await until(() => /running|degraded/.test(machine.systemctl('is-system-running')))
  return machine
}

function bootScript(place: string, cgroup: string): string {
  const inside = `
    set -e
    mount --make-rprivate /
    mount -t tmpfs tmpfs ${place}/${layers}
    cd ${place}/${layers}
    mkdir etc etc-work var var-work opt
    mount -t overlay overlay -o lowerdir=/etc,upperdir=etc,workdir=etc-work /etc
    mount -t overlay overlay -o lowerdir=/var,upperdir=var,workdir=var-work /var
    mkdir opt/penny opt/node
    mount --bind ${root} opt/penny
    mount --bind ${dirname(dirname(process.execPath))} opt/node
    mount --rbind opt /opt
    rm -rf /etc/systemd/system
    cp -r ${place}/files/. /etc/
    echo 'penny:x:64123:64123::/nonexistent:/bin/false' >> /etc/passwd
    echo 'penny:x:64123:' >> /etc/group
    mount -t tmpfs tmpfs /run
    mount -t tmpfs tmpfs /dev/shm
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    ip link set lo up || true
    cd /
    exec env -i container=drill PATH=/usr/sbin:/usr/bin:/sbin:/bin SYSTEMD_UNIT_PATH=/etc/systemd/system \\
      /lib/systemd/systemd --system --unit=drill.target --log-target=console --show-status=no`
  return `mkdir -p ${cgroup} && echo $$ > ${cgroup}/cgroup.procs
exec unshare --cgroup --pid --mount --uts --ipc --net --fork --mount-proc --kill-child bash -c '${inside.replaceAll("'", `'\\''`)}'
`
}

function target(name: string): string {
  return `[Unit]\nDescription=${name}\nDefaultDependencies=no\n`
}

/** The process outside that is process 1 inside. */
function initOf({ pid, exitCode }: ChildProcess, said: string): number | undefined {
  if (exitCode !== null) throw new Error(`systemd does not start: ${said}`)
  const children = readText(`/proc/${pid}/task/${pid}/children`).trim()
  const init = children === '' ? undefined : Number(children.split(' ')[0])
  return init !== undefined && /systemd/.test(readText(`/proc/${init}/comm`)) ? init : undefined
}

function cgroupRoot(): string | undefined {
  return cgroupRoots.find((folder) => existsSync(join(folder, 'cgroup.procs')))
}

/** Empty ones only, the innermost first. */
function removeCgroups(folder: string): void {
  const folders = execFileSync('find', [folder, '-depth', '-type', 'd'], { encoding: 'utf8' }).trim().split('\n')
  for (const found of folders) rmdirSync(found)
}

function readText(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch {
    return ''
  }
}
