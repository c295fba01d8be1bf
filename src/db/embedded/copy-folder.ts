import { chmod, copyFile, lchown, mkdir, open, readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'

/** Which paths below a folder to skip. A skipped folder is still created, empty. */
export type LeftOut = (path: string) => boolean

/**
 * Copies a folder whose files may grow, shrink and disappear meanwhile, with owners and modes, and syncs it to disk. Skips anything
 * that is neither file nor folder (a socket).
 */
export async function copyFolder(
  from: string,
  to: string,
  isLeftOut: LeftOut = () => false,
  below = '',
): Promise<void> {
  await makeLike(from, to)
  for (const entry of await readdir(from, { withFileTypes: true })) {
    const path = below === '' ? entry.name : `${below}/${entry.name}`
    const [source, target] = [join(from, entry.name), join(to, entry.name)]
    if (entry.isDirectory()) {
      if (isLeftOut(path)) await makeLike(source, target)
      else await copyFolder(source, target, isLeftOut, path)
    } else if (entry.isFile() && !isLeftOut(path)) await copyOne(source, target)
  }
}

async function makeLike(from: string, to: string): Promise<void> {
  await mkdir(to, { recursive: true, mode: 0o700 })
  await copyOwnerAndMode(from, to)
}

async function copyOne(from: string, to: string): Promise<void> {
  try {
    await copyFile(from, to)
    await copyOwnerAndMode(from, to)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return
    throw error
  }
  const handle = await open(to, 'r')
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}

/** PostgreSQL starts only on a folder that its own user owns, closed to others. */
async function copyOwnerAndMode(from: string, to: string): Promise<void> {
  const { mode, uid, gid } = await stat(from)
  await chmod(to, mode & 0o777)
  if (process.getuid?.() === 0) await lchown(to, uid, gid)
}
