import { chmod, mkdir, realpath, stat } from 'node:fs/promises'
import { reasonOf, UnusableSettingError } from '../errors.ts'

const mode = 0o711

/**
 * Makes the service's folder where there is none, and returns its real path. 0711: PostgreSQL, as another user, must pass through;
 * nobody may look around. Secrets in it are 0600 themselves.
 */
export async function prepareDataDir(dataDir: string): Promise<string> {
  try {
    await mkdir(dataDir, { recursive: true, mode })
    const home = await realpath(dataDir)
    const found = await stat(home)
    // Somebody else's folder, as the root of a volume in Kubernetes, keeps the mode it has: it is not ours to change.
    const mayChange = found.uid === process.getuid?.() || process.getuid?.() === 0
    if (mayChange && (found.mode & 0o777) !== mode) await chmod(home, mode)
    return home
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    const isFile = code === 'EEXIST' || code === 'ENOTDIR'
    const reason = isFile ? `${dataDir} is not a folder, or is inside a file` : reasonOf(error)
    throw new UnusableSettingError('DATA_DIR', reason, remedyFor(code), error)
  }
}

function remedyFor(code: string | undefined): string {
  return code === 'ENOSPC' ? 'Free some disk space.' : 'Set DATA_DIR to a folder that this user can write to.'
}
