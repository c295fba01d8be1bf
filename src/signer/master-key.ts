import { hkdfSync, randomBytes } from 'node:crypto'
import { constants } from 'node:fs'
import { type FileHandle, mkdir, open, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { MasterKeySource } from '../config/config.ts'
import { OperatorError } from '../errors.ts'
import { createOnce } from '../process/create-once.ts'
import type { Address } from './address.ts'

const keyBytes = 32
const fingerprintBytes = 16
const fileBytesMax = 1024

/**
 * The key from which all custodial keys are derived: the configured one, or one that is created once in the data folder. Another
 * key would give every account another address, and the money at the old addresses would be out of reach. The folder therefore
 * stores the fingerprint of the first key it was used with, and any other key is refused. A new folder on a ledger that exists has no
 * fingerprint yet: `check` throws when the key is not that of the ledger, and then none is stored.
 */
export async function loadMasterKey(
  dataDir: string,
  configured?: MasterKeySource | undefined,
  check: (key: Buffer) => void = () => {},
): Promise<Buffer> {
  await mkdir(dataDir, { recursive: true, mode: 0o711 })
  const keyFile = join(dataDir, 'master.key')
  const fingerprintFile = join(dataDir, 'master.fingerprint')
  const known = await readLine(fingerprintFile)
  const stored = await readKeyFile(keyFile)
  if (configured === undefined && stored === undefined && known !== undefined)
    throw new OperatorError(`MASTER_KEY is not set, but it was before (fingerprint ${known}). Set the same key again.`)
  const key = configured === undefined ? (stored ?? (await makeKey(keyFile))) : await readConfiguredKey(configured)
  const fingerprint = fingerprintOf(key)
  const expected = known ?? (stored === undefined ? undefined : fingerprintOf(stored))
  if (expected !== undefined && expected !== fingerprint)
    throw new OperatorError(
      `MASTER_KEY (fingerprint ${fingerprint}) is not the key that ${dataDir} was created with (${expected}), and every account would get another address. Set the previous key.`,
    )
  check(key)
  if (known === undefined) await createOnce(fingerprintFile, fingerprint)
  return key
}

/** Reads the operator's key. Its file may be a symbolic link, as secrets on container platforms are. */
export async function readConfiguredKey(source: MasterKeySource): Promise<Buffer> {
  if ('value' in source) return parseKey(source.value, 'MASTER_KEY')
  const text = await readFile(source.file, 'utf8').catch((error: unknown) => {
    throw new OperatorError(`${source.file} cannot be read: ${(error as Error).message}.`, error)
  })
  return parseKey(text.trim(), `MASTER_KEY_FILE (${source.file})`)
}

/** Identifies a master key without revealing anything about it: safe for logs and for the database. */
export function fingerprintOf(masterKey: Uint8Array): string {
  return Buffer.from(hkdfSync('sha256', masterKey, '', 'penny master key fingerprint', fingerprintBytes)).toString(
    'hex',
  )
}

async function makeKey(file: string): Promise<Buffer> {
  await createOnce(file, randomBytes(keyBytes).toString('hex'))
  // Another process may have created it first: the key in the file is the valid one.
  return (await readKeyFile(file))!
}

async function readKeyFile(file: string): Promise<Buffer | undefined> {
  const line = await readLine(file, async (handle) => {
    const { mode } = await handle.stat()
    if ((mode & 0o077) !== 0)
      throw new OperatorError(
        `${file} can be read by others (mode 0${(mode & 0o777).toString(8)}). Consider who may have read it, then run chmod 600 on it.`,
      )
  })
  return line === undefined ? undefined : parseKey(line, file)
}

function parseKey(text: string, place: string): Buffer {
  if (!/^[0-9a-f]{64}$/i.test(text))
    throw new OperatorError(`${place} must hold 64 hex digits (32 random bytes): openssl rand -hex 32`)
  return Buffer.from(text, 'hex')
}

async function readLine(file: string, inspect?: (handle: FileHandle) => Promise<void>): Promise<string | undefined> {
  let handle: FileHandle
  try {
    handle = await open(file, constants.O_RDONLY | constants.O_NOFOLLOW)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw new OperatorError(`${file} cannot be read: ${(error as Error).message}.`, error)
  }
  try {
    await inspect?.(handle)
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(fileBytesMax), 0, fileBytesMax, 0)
    return buffer.toString('utf8', 0, bytesRead).trim()
  } finally {
    await handle.close()
  }
}

/** The key does not belong to the ledger. */
export class OtherMasterKeyError extends OperatorError {
  constructor(issuer: Address, known: Address) {
    super(
      `The master key is not the one of this ledger: it would sign receipts as ${issuer}, but the ledger's receipts are signed by ${known}. Set MASTER_KEY_FILE to the ledger's key or restore DATA_DIR, or use an empty database for another key.`,
    )
  }
}
