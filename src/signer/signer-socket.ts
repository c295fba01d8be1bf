import { join } from 'node:path'
import { ensureSocketLink } from '../db/embedded/socket-link.ts'

// A socket path is limited to 107 bytes on Linux and 103 on macOS.
const pathBytesMax = 103

/** The signer's own folder in the data folder, with its socket and its register. No other user may enter it. */
export function signerFolder(dataDir: string): string {
  return join(dataDir, 'signer')
}

/**
 * The socket path for a data folder. Client and server compute the same path, even if the folder's own path is too long for a
 * socket.
 */
export async function signerSocketPath(dataDir: string): Promise<string> {
  const folder = signerFolder(dataDir)
  const path = join(folder, 'sign.sock')
  if (Buffer.byteLength(path) <= pathBytesMax) return path
  // Called before every connection: a cleaner of the temp folder may have deleted the link.
  return join(await ensureSocketLink(folder), 'sign.sock')
}
