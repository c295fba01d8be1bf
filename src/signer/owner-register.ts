import { createHmac } from 'node:crypto'
import {
  closeSync,
  fdatasyncSync,
  fsyncSync,
  ftruncateSync,
  openSync,
  readSync,
  renameSync,
  writeFileSync,
} from 'node:fs'
import { dirname } from 'node:path'
import { OperatorError } from '../errors.ts'
import { isSameSecret } from '../process/same-secret.ts'
import { type Address, parseAddress } from './address.ts'
import { type RegisteredOwner, SigningRefusedError } from './signing-request.ts'

export type OwnerRegisterOptions = {
  /** Path of the journal. Only the signer's user can read it, and only the signer can write a line with a valid seal. */
  readonly file: string
  readonly sealingKey: Buffer
  /** Delay before withdrawals go to a changed owner. */
  readonly waitMs: number
  /** A start compacts the journal from this many chained lines on. */
  readonly compactLines?: number
}

type Entry = RegisteredOwner & {
  readonly account: string
  readonly registeredMs: number
}

type Owners = {
  /** The owner that was in effect when `latest` was registered; undefined when there was none. */
  readonly usable: Entry | undefined
  readonly latest: Entry
  /** Times of address changes, within the last day only. Reverting to the old address does not count. */
  readonly changedMs: readonly number[]
}

const dayMs = 24 * 3_600_000
/** Each change costs a line and an fsync. With a revert after each change, a day has at most twice this number of lines. */
const changesPerDayMax = 5
const compactLinesDefault = 1_000
const chunkBytes = 1024 * 1024
const lineBytesMax = 4_096
const newline = 0x0a

/**
 * Where each account's withdrawals may go, from the signer's own records. A first address takes effect immediately if the service
 * vouches for it. A changed address takes effect after the delay; until then the old one stays in effect. The service stores owners
 * too, for display. But a compromised service must not be able to register its own address and withdraw to it immediately.
 *
 * The file is a snapshot, sealed as a whole, followed by one sealed line for each later change. A start with many such lines writes
 * a new snapshot, so the file grows with the number of accounts and not with the number of changes.
 */
export class OwnerRegister {
  readonly #options: OwnerRegisterOptions
  readonly #owners = new Map<string, Owners>()
  #descriptor: number
  #bytes = 0
  #seal = ''
  #chainedLines = 0

  constructor(options: OwnerRegisterOptions) {
    this.#options = options
    this.#descriptor = openSync(options.file, 'a+', 0o600)
    this.#load()
    const { compactLines = compactLinesDefault } = options
    // At least half as many lines as accounts: the cost of a compaction is spread over many changes.
    if (this.#chainedLines >= compactLines && this.#chainedLines * 2 >= this.#owners.size) this.#compact()
  }

  /**
   * Durable when it returns. Registering the current owner again changes nothing. `immediate`: the account is empty, or its holder
   * has confirmed this address; then a first address takes effect immediately. Throws `SigningRefusedError` while another change is
   * pending, and after too many changes.
   */
  register(account: string, address: Address, nowMs: number, immediate: boolean): RegisteredOwner {
    const known = this.#owners.get(account)
    const usable = this.usable(account, nowMs)
    if (known?.latest.address === address && !(immediate && usable === undefined)) return ownerOf(known.latest)
    // Reverting to the address that is still in effect needs no delay: it cancels the pending change.
    const isTakenBack = usable?.address === address
    const atOnce = isTakenBack || (immediate && usable === undefined)
    if (!isTakenBack) refuseChange(known, { nowMs, atOnce })
    const usableFromMs = atOnce ? nowMs : nowMs + this.#options.waitMs
    const entry = { account, address, usableFromMs, registeredMs: nowMs }
    this.#append(entry)
    this.#apply(entry)
    return { address, usableFromMs }
  }

  /** Where withdrawals may go now. */
  usable(account: string, nowMs: number): RegisteredOwner | undefined {
    const entry = this.#usableEntry(account, nowMs)
    return entry && ownerOf(entry)
  }

  close(): void {
    closeSync(this.#descriptor)
  }

  #usableEntry(account: string, nowMs: number): Entry | undefined {
    const owners = this.#owners.get(account)
    if (owners === undefined) return undefined
    return owners.latest.usableFromMs <= nowMs ? owners.latest : owners.usable
  }

  #apply(entry: Entry): void {
    const { account, address, registeredMs } = entry
    const known = this.#owners.get(account)
    const usable = this.#usableEntry(account, registeredMs)
    const recent = (known?.changedMs ?? []).filter((changedMs) => changedMs > registeredMs - dayMs)
    const changedMs = usable?.address === address ? recent : [...recent, registeredMs].slice(-changesPerDayMax)
    this.#owners.set(account, { usable, latest: entry, changedMs })
  }

  #append(entry: Entry): void {
    const seal = this.#sealOf(entry)
    const line = `${JSON.stringify({ ...entry, seal })}\n`
    // Cut off the remains of a failed append first: the journal must contain complete lines only.
    ftruncateSync(this.#descriptor, this.#bytes)
    // Not `writeSync`: on a full disk it writes a part of the line and reports no error.
    writeFileSync(this.#descriptor, line)
    fdatasyncSync(this.#descriptor)
    this.#bytes += Buffer.byteLength(line)
    this.#seal = seal
  }

  /** Reads the file in chunks: it may exceed the longest possible string. */
  #load(): void {
    const lines = new LineReader(this.#descriptor)
    let number = 0
    for (let line = lines.next(); line !== undefined; line = lines.next()) {
      number += 1
      if (number === 1 && line.startsWith('{"snapshot":')) number += this.#loadSnapshot(line, lines)
      else this.#replay(line, number)
    }
    // A killed signer may have left an incomplete last line. No caller got a confirmation for it.
    this.#bytes = lines.bytesRead
  }

  #loadSnapshot(header: string, lines: LineReader): number {
    const hmac = createHmac('sha256', this.#options.sealingKey).update(`${header}\n`)
    const count = Number(/^\{"snapshot":1,"entries":(\d{1,12})\}$/.exec(header)?.[1] ?? Number.NaN)
    const sealed: string[] = []
    for (let read = 0; read < count; read += 1) {
      const line = lines.next()
      if (line === undefined) throw new OwnerRegisterError(this.#options.file, read + 2)
      hmac.update(`${line}\n`)
      sealed.push(line)
    }
    const seal = hmac.digest('hex')
    const sealLine = lines.next() ?? ''
    // Use nothing of a snapshot until the seal over all of it is verified.
    if (Number.isNaN(count) || !isSameSecret(sealLine, sealText(seal)))
      throw new OwnerRegisterError(this.#options.file, count + 2)
    for (const [account, owners] of sealed.map(readSnapshotLine)) this.#owners.set(account, owners)
    this.#seal = seal
    return count + 1
  }

  #replay(line: string, number: number): void {
    const { seal, ...entry } = parseEntry(line) ?? {}
    if (seal === undefined || !isSameSecret(seal, this.#sealOf(entry as Entry))) {
      throw new OwnerRegisterError(this.#options.file, number)
    }
    this.#seal = seal
    this.#chainedLines += 1
    this.#apply(entry as Entry)
  }

  /** Writes a new file and renames it over the old one: after a crash at any point, one of the two is complete. */
  #compact(): void {
    const { file, sealingKey } = this.#options
    const entries = [...this.#owners]
    const descriptor = openSync(`${file}.new`, 'w+', 0o600)
    const hmac = createHmac('sha256', sealingKey)
    let bytes = 0
    const write = (text: string) => {
      writeFileSync(descriptor, text)
      bytes += Buffer.byteLength(text)
    }
    const sealed = (text: string) => {
      hmac.update(text)
      write(text)
    }
    sealed(`{"snapshot":1,"entries":${entries.length}}\n`)
    for (let start = 0; start < entries.length; start += 10_000) {
      sealed(
        entries
          .slice(start, start + 10_000)
          .map(snapshotLine)
          .join(''),
      )
    }
    const seal = hmac.digest('hex')
    write(`${sealText(seal)}\n`)
    fsyncSync(descriptor)
    closeSync(descriptor)
    renameSync(`${file}.new`, file)
    syncFolder(dirname(file))
    closeSync(this.#descriptor)
    this.#descriptor = openSync(file, 'a+', 0o600)
    this.#bytes = bytes
    this.#seal = seal
    this.#chainedLines = 0
  }

  /** Each seal covers the previous one: a line can be neither changed nor removed. */
  #sealOf({ account, address, usableFromMs, registeredMs }: Entry): string {
    const text = [this.#seal, account, address, usableFromMs, registeredMs].join('\n')
    return createHmac('sha256', this.#options.sealingKey).update(text).digest('hex')
  }
}

/** Allows one pending change at a time and a few per day: a stolen session must not be able to fill the journal. */
function refuseChange(known: Owners | undefined, { nowMs, atOnce }: { nowMs: number; atOnce: boolean }): void {
  if (known === undefined) return
  if (!atOnce && known.latest.usableFromMs > nowMs) {
    const from = new Date(known.latest.usableFromMs).toISOString()
    throw new SigningRefusedError('owner_pending', `another address change is pending until ${from}`)
  }
  if (known.changedMs.filter((changedMs) => changedMs > nowMs - dayMs).length >= changesPerDayMax) {
    throw new SigningRefusedError('owner_too_often', `the address was changed ${changesPerDayMax} times within a day`)
  }
}

function snapshotLine([account, { usable, latest, changedMs }]: readonly [string, Owners]): string {
  return `${JSON.stringify([account, snapshotEntry(latest), usable === undefined ? null : snapshotEntry(usable), changedMs])}\n`
}

function snapshotEntry({ address, usableFromMs, registeredMs }: Entry) {
  return [address, usableFromMs, registeredMs] as const
}

/** Call only for lines whose seal was verified. */
function readSnapshotLine(line: string): readonly [string, Owners] {
  type Line = [string, ReturnType<typeof snapshotEntry>, ReturnType<typeof snapshotEntry> | null, number[]]
  const [account, latest, usable, changedMs] = JSON.parse(line) as Line
  const entryOf = ([address, usableFromMs, registeredMs]: Line[1]) => ({ account, address, usableFromMs, registeredMs })
  return [account, { latest: entryOf(latest), usable: usable === null ? undefined : entryOf(usable), changedMs }]
}

function sealText(seal: string): string {
  return `{"seal":"${seal}"}`
}

function ownerOf({ address, usableFromMs }: Entry): RegisteredOwner {
  return { address, usableFromMs }
}

function parseEntry(line: string): (Entry & { readonly seal: string }) | undefined {
  try {
    const { account, address, usableFromMs, registeredMs, seal } = JSON.parse(line) as Record<string, unknown>
    const parsed = parseAddress(String(address))
    if (typeof account !== 'string' || parsed === undefined || typeof seal !== 'string') return undefined
    return { account, address: parsed, usableFromMs: Number(usableFromMs), registeredMs: Number(registeredMs), seal }
  } catch {
    return undefined
  }
}

/** Yields the complete lines of a file. */
class LineReader {
  /** Offset of the end of the last complete line. */
  bytesRead = 0
  readonly #descriptor: number
  #chunk = Buffer.alloc(0)
  #position = 0

  constructor(descriptor: number) {
    this.#descriptor = descriptor
  }

  next(): string | undefined {
    for (;;) {
      const end = this.#chunk.indexOf(newline)
      if (end >= 0) {
        const line = this.#chunk.toString('utf8', 0, end)
        this.#chunk = this.#chunk.subarray(end + 1)
        this.bytesRead += end + 1
        return line
      }
      // No valid line is that long: stop reading.
      if (this.#chunk.length > lineBytesMax) return this.#chunk.toString('utf8', 0, lineBytesMax)
      const more = Buffer.allocUnsafe(chunkBytes)
      const count = readSync(this.#descriptor, more, 0, chunkBytes, this.#position)
      if (count === 0) return undefined
      this.#position += count
      this.#chunk = Buffer.concat([this.#chunk, more.subarray(0, count)])
    }
  }
}

/** A rename is durable once its folder is synced. */
function syncFolder(folder: string): void {
  const descriptor = openSync(folder, 'r')
  try {
    fsyncSync(descriptor)
  } finally {
    closeSync(descriptor)
  }
}

class OwnerRegisterError extends OperatorError {
  constructor(file: string, line: number) {
    super(`${file} was changed by another program (line ${line}). Restore a copy that the signer wrote.`)
  }
}
