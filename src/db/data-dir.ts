import { chmod, mkdir, realpath, stat } from 'node:fs/promises'
import { dirname, resolve } from 'node:path'
import { reasonOf, UnusableSettingError } from '../errors.ts'

const mode = 0o711

/**
 * Creates the service's folder if needed, and returns its real path. Mode 0711: PostgreSQL, which runs as another user, must pass
 * through it, but no other user may list it. Secrets in it have mode 0600.
 */
export async function prepareDataDir(dataDir: string): Promise<string> {
  try {
    await makeFolder(resolve(dataDir))
    const home = await realpath(dataDir)
    const found = await stat(home)
    // A folder of another user, such as the root of a Kubernetes volume, keeps its mode: it is not ours to change.
    const mayChange = found.uid === process.getuid?.() || process.getuid?.() === 0
    if (mayChange && (found.mode & 0o777) !== mode) await chmod(home, mode)
    return home
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    const isFile = code === 'EEXIST' || code === 'ENOTDIR'
    const reason = isFile ? `${dataDir} is not a folder, or is inside a file` : reasonOf(error)
    const remedy = code === 'ENOSPC' ? 'Free some disk space.' : 'Set DATA_DIR to a folder that this user can write to.'
    throw new UnusableSettingError('DATA_DIR', reason, remedy, error)
  }
}

/**
 * Parent by parent: Node's recursive `mkdir` never returns below /proc, and hides why the first folder cannot be made, such as a
 * file system that is read-only.
 */
async function makeFolder(folder: string): Promise<void> {
  try {
    await mkdir(folder, { mode })
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'EEXIST' && (await stat(folder)).isDirectory()) return
    if (code !== 'ENOENT') throw error
    await makeFolder(dirname(folder))
    await mkdir(folder, { mode })
  }
}
