import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { OperatorError } from '../../errors.ts'

const execute = promisify(execFile)

/** A user of the machine, by number. */
export type Identity = { readonly uid: number; readonly gid: number }

/** How to run PostgreSQL's programs: they refuse to run as root. */
export type RunAs = {
  /** The required owner of the data folder; undefined when we are not root. */
  readonly owner: Identity | undefined
  /** For `spawn`: the user to switch to. */
  readonly become: Identity | Record<string, never>
  /** Goes before the command: empty, or a program that drops privileges itself. */
  readonly prefix: readonly string[]
}

/** The whole environment of PostgreSQL's programs: it must not contain our secrets. */
export const cleanEnvironment = { PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin', LC_ALL: 'C' }

const probeMaxMs = 10_000

/**
 * Chooses the user that runs PostgreSQL. As root it is the owner of an existing data folder, otherwise `nobody` (initdb refuses a
 * user without a passwd entry). `mustEnter` are the folders that this user has to reach.
 */
export async function chooseRunAs(owner: Identity | undefined, mustEnter: readonly string[]): Promise<RunAs> {
  if (process.getuid?.() !== 0) return { owner: undefined, become: {}, prefix: [] }
  const identity = owner ?? (await nobody())
  const plain: RunAs = { owner: identity, become: identity, prefix: [] }
  if (await canEnter(plain, mustEnter)) return plain
  const capable: RunAs = { owner: identity, become: {}, prefix: keepingDirectoryAccess(identity) }
  if (await canEnter(capable, mustEnter)) return capable
  throw new OperatorError(
    `PostgreSQL does not run as root, and no other user can enter ${mustEnter.join(' and ')}: ` +
      'start penny as another user, move it or DATA_DIR elsewhere, or install setpriv (util-linux).',
  )
}

/** The program and arguments for `spawn`. */
export function commandAs(runAs: RunAs, program: string, args: readonly string[]): [string, string[]] {
  const [first, ...rest] = [...runAs.prefix, program, ...args]
  return [first!, rest]
}

async function nobody(): Promise<Identity> {
  try {
    const [uid, gid] = await Promise.all([idOfNobody('-u'), idOfNobody('-g')])
    return { uid, gid }
  } catch (error) {
    throw new OperatorError(
      'PostgreSQL does not run as root, and this machine has no user "nobody". Start penny as another user.',
      error,
    )
  }
}

async function idOfNobody(flag: '-u' | '-g'): Promise<number> {
  const { stdout } = await execute('id', [flag, 'nobody'], { timeout: probeMaxMs })
  return Number.parseInt(stdout, 10)
}

/**
 * Another user cannot pass a folder that only root may enter, such as root's home. `setpriv` drops root and keeps only the
 * capability to read past such folders.
 */
function keepingDirectoryAccess({ uid, gid }: Identity): string[] {
  return [
    'setpriv',
    `--reuid=${uid}`,
    `--regid=${gid}`,
    '--clear-groups',
    '--inh-caps=+dac_override',
    '--ambient-caps=+dac_override',
    '--securebits=+no_setuid_fixup',
    '--',
  ]
}

/** Tries it instead of reading modes: access control lists and mounts matter too. */
async function canEnter(runAs: RunAs, folders: readonly string[]): Promise<boolean> {
  const [program, args] = commandAs(runAs, 'sh', ['-c', 'for folder do cd "$folder" || exit 1; done', 'sh', ...folders])
  const options = { ...runAs.become, cwd: '/', env: cleanEnvironment, timeout: probeMaxMs }
  return execute(program, args, options).then(
    () => true,
    () => false,
  )
}
