import { createHash } from 'node:crypto'
import { lstat, lutimes, readlink, symlink, unlink } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { OperatorError } from '../../errors.ts'

// A socket path is limited to 107 bytes on Linux and 103 on macOS; `/.s.PGSQL.5432` and our link's name take up to 46.
const temporaryFolderBytesMax = 55
const namesMax = 8

/**
 * A short path to the socket's folder, however long the folder's own path: a link in the temp folder. The name is derived from the
 * folder, so every process of a user finds the same link, and a killed process leaves no extra links behind.
 */
export async function ensureSocketLink(folder: string): Promise<string> {
  for (const link of candidates(folder)) {
    if ((await isOurs(link, folder)) || (await make(link, folder))) return link
  }
  throw new OperatorError(`No link to ${folder} can be made in ${tmpdir()}: all ${namesMax} names are taken by others.`)
}

/** Creates the link again if a cleaner of the temp folder deleted it, and updates its times so that it is not deleted. */
export async function refreshSocketLink(folder: string): Promise<void> {
  const now = new Date()
  await lutimes(await ensureSocketLink(folder), now, now)
}

export async function removeSocketLink(folder: string): Promise<void> {
  for (const link of candidates(folder)) {
    if (await isOurs(link, folder)) await unlink(link).catch(ignoreMissing)
  }
}

function* candidates(folder: string): Generator<string> {
  const hash = createHash('sha256').update(folder).digest('hex').slice(0, 12)
  const parent = Buffer.byteLength(tmpdir()) <= temporaryFolderBytesMax ? tmpdir() : '/tmp'
  for (let number = 1; number <= namesMax; number += 1) {
    yield join(parent, `penny-${process.getuid?.() ?? 0}-${hash}-${number}`)
  }
}

/** The temp folder is shared: a link that another user made could lead to that user's server. */
async function isOurs(link: string, folder: string): Promise<boolean> {
  try {
    const { uid } = await lstat(link)
    return uid === process.getuid?.() && (await readlink(link)) === folder
  } catch {
    return false
  }
}

async function make(link: string, folder: string): Promise<boolean> {
  try {
    await symlink(folder, link)
    return true
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
    // Another process of ours may have created it first.
    return isOurs(link, folder)
  }
}

function ignoreMissing(error: NodeJS.ErrnoException): void {
  if (error.code !== 'ENOENT') throw error
}
