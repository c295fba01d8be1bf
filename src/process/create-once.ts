import { randomUUID } from 'node:crypto'
import { link, open, unlink } from 'node:fs/promises'
import { dirname } from 'node:path'
import { syncFolder } from './sync-folder.ts'

/**
 * Writes a file completely and durably, readable by its owner alone, or keeps the existing one: a half-written key would be a lost key.
 */
export async function createOnce(file: string, line: string): Promise<void> {
  const draft = `${file}.${randomUUID()}`
  const handle = await open(draft, 'wx', 0o600)
  try {
    await handle.writeFile(`${line}\n`)
    await handle.sync()
  } finally {
    await handle.close()
  }
  try {
    // Unlike a rename, a hard link never replaces an existing file.
    await link(draft, file)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
  } finally {
    await unlink(draft)
  }
  await syncFolder(dirname(file))
}
