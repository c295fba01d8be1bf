import { type FileHandle, mkdir, open } from 'node:fs/promises'
import { dirname } from 'node:path'
import { crc32 } from 'node:zlib'
import type { Address, Hash, Hex } from 'viem'

/** A change of the chain. Replayed in the same order, the entries give the same chain. Times are in seconds. */
export type JournalEntry = FoundingEntry | (Change & { readonly parent: Hash })

/** The first entry: the chain's identity and its initial state. A single line, so that it is atomic. */
export type FoundingEntry = {
  readonly kind: 'founding'
  readonly version: 2
  readonly chainId: number
  readonly genesisTime: number
  readonly time: number
  readonly steps: readonly FoundingStep[]
  readonly addresses: ChainAddresses
  /** Hash of the contracts it was created with; a later release may have others. */
  readonly contractsHash: Hash
}

export type FoundingStep =
  | { readonly kind: 'transaction'; readonly raw: Hex }
  | { readonly kind: 'funding'; readonly address: Address; readonly wei: string }
  /** Copies the code of a deployed contract, including immutables, to an address that no deployment could reach. */
  | { readonly kind: 'placement'; readonly from: Address; readonly to: Address }

export type ChainAddresses = { readonly usdc: Address; readonly systemLog: Address; readonly gateway: Address }

export type Change =
  | { readonly kind: 'transaction'; readonly time: number; readonly raw: Hex }
  | { readonly kind: 'mining'; readonly time: number; readonly blocks: number }
  | { readonly kind: 'clock'; readonly aheadSeconds: number }

/** Larger than the largest accepted transaction in hex. */
const lineBytesMax = 1024 * 1024

/**
 * The file that defines the chain: one entry per line, each with its checksum.
 *
 * An entry is on disk before it is applied, and before the next one is written. So a crash can tear only the last line, and no client was
 * told of its content.
 */
export class Journal {
  readonly #file: FileHandle
  readonly #path: string
  /** The valid length of the file: complete lines that are known to be on disk. */
  #length = 0
  #broken: Error | undefined

  private constructor(file: FileHandle, path: string) {
    this.#file = file
    this.#path = path
  }

  static async open(path: string): Promise<Journal> {
    await mkdir(dirname(path), { recursive: true, mode: 0o700 })
    const journal = new Journal(await open(path, 'a+', 0o600), path)
    await syncFolder(dirname(path))
    return journal
  }

  /** How far `entries` has read, in bytes. */
  get length(): number {
    return this.#length
  }

  async size(): Promise<number> {
    return (await this.#file.stat()).size
  }

  /** All entries from the first on. Read them to the end before appending. Drops a torn last line. */
  async *entries(): AsyncGenerator<JournalEntry> {
    let torn = false
    for await (const { line, end } of this.#lines()) {
      const entry = parseLine(line)
      if (entry === undefined) torn = true
      // A line after a bad one was written when the bad one was already on disk. So that one is damaged, not torn: continuing
      // without it would create a different history.
      else if (torn) throw new DamagedJournalError(this.#path, this.#length)
      else {
        this.#length = end
        yield entry
      }
    }
    if ((await this.size()) === this.#length) return
    await this.#file.truncate(this.#length)
    await this.#file.datasync()
  }

  /** Resolves when the entry is on disk. */
  async append(entry: JournalEntry): Promise<void> {
    if (this.#broken !== undefined) throw this.#broken
    const line = formatLine(entry)
    try {
      if ((await this.size()) !== this.#length) throw new Error(`Another process writes ${this.#path}.`)
      await this.#file.appendFile(line)
      await this.#file.datasync()
    } catch (error) {
      // After a failed write or sync it is unknown whether the entry is on disk. Only a restart can tell.
      this.#broken = new JournalBrokenError(this.#path, error)
      throw this.#broken
    }
    this.#length += line.length
  }

  async close(): Promise<void> {
    await this.#file.close()
  }

  /** Every complete line, and the offset of its end. */
  async *#lines(): AsyncGenerator<{ readonly line: Buffer; readonly end: number }> {
    let rest: Buffer = Buffer.alloc(0)
    let offset = 0
    for await (const chunk of this.#file.createReadStream({ start: 0, autoClose: false })) {
      rest = Buffer.concat([rest, chunk as Buffer])
      for (let end = rest.indexOf('\n'); end !== -1; end = rest.indexOf('\n')) {
        offset += end + 1
        yield { line: rest.subarray(0, end), end: offset }
        rest = rest.subarray(end + 1)
      }
      if (rest.length > lineBytesMax) throw new DamagedJournalError(this.#path, offset)
    }
  }
}

function formatLine(entry: JournalEntry): Buffer {
  const text = JSON.stringify(entry)
  return Buffer.from(`${checksum(text)} ${text}\n`)
}

function parseLine(line: Buffer): JournalEntry | undefined {
  const text = line.toString()
  const entry = text.slice(9)
  return text.startsWith(`${checksum(entry)} `) ? JSON.parse(entry) : undefined
}

function checksum(text: string): string {
  return crc32(text).toString(16).padStart(8, '0')
}

/** The name of a new file is durable only once its folder is synced. */
async function syncFolder(path: string): Promise<void> {
  const folder = await open(path)
  try {
    await folder.sync()
  } finally {
    await folder.close()
  }
}

/** The file was changed by something other than a crash. */
export class DamagedJournalError extends Error {
  constructor(path: string, offset: number) {
    super(
      `${path} is damaged after byte ${offset}, before its end. Restore it from a backup, or move it away to start over.`,
    )
    this.name = 'DamagedJournalError'
  }
}

/** Nothing can be written until a restart. */
export class JournalBrokenError extends Error {
  constructor(path: string, cause: unknown) {
    super(`${path} could not be written: ${cause instanceof Error ? cause.message : cause}`, { cause })
    this.name = 'JournalBrokenError'
  }
}
