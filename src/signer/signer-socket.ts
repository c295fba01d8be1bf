import { join } from 'node:path'
import { ensureSocketLink } from '../db/embedded/socket-link.ts'

// The path of a socket may have 107 bytes on Linux and 103 on macOS.
const pathBytesMax = 103

/** What the signer keeps in the data folder: its socket and its register. Nobody else may enter. */
export function signerFolder(dataDir: string): string {
  return join(dataDir, 'signer')
}

/** Where the signer of that data folder listens: the same for both sides, whatever the length of the folder's own path. */
export async function signerSocketPath(dataDir: string): Promise<string> {
  const folder = signerFolder(dataDir)
  const path = join(folder, 'sign.sock')
  if (Buffer.byteLength(path) <= pathBytesMax) return path
  // Asked for before every connection: a cleaner of the temp folder may have taken the link.
  return join(await ensureSocketLink(folder), 'sign.sock')
}
