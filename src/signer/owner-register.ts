import { createHmac, timingSafeEqual } from 'node:crypto'
import { closeSync, fdatasyncSync, ftruncateSync, openSync, readFileSync, writeSync } from 'node:fs'
import { OperatorError } from '../errors.ts'
import { type Address, parseAddress } from './address.ts'
import type { RegisteredOwner } from './signing-request.ts'

export type OwnerRegisterOptions = {
  /** The journal. Only the signer's user can read it, and only the signer can write a line that it believes. */
  readonly file: string
  readonly sealingKey: Buffer
  /** How long a changed owner waits before withdrawals go there. */
  readonly waitMs: number
}

type Entry = RegisteredOwner & {
  readonly account: string
  readonly registeredMs: number
}

type Owners = {
  readonly usable: RegisteredOwner | undefined
  readonly latest: RegisteredOwner
}

/**
 * Where each account's withdrawals may go, as the signer itself was told. The first address counts at once, a changed one
 * after the wait, and until then the old one stays. The service keeps owners too, for people to see; but a service that
 * was broken into must not be able to say "his address is mine" and withdraw in the same breath.
 */
export class OwnerRegister {
  readonly #options: OwnerRegisterOptions
  readonly #owners = new Map<string, Owners>()
  readonly #descriptor: number
  #bytes = 0
  #seal = ''

  constructor(options: OwnerRegisterOptions) {
    this.#options = options
    this.#descriptor = openSync(options.file, 'a+', 0o600)
    const journal = readFileSync(this.#descriptor, 'utf8')
    // The last line may be half of one, written by a signer that was killed: nobody was told that it counts.
    const lines = journal.slice(0, journal.lastIndexOf('\n') + 1)
    for (const [index, line] of lines.split('\n').slice(0, -1).entries()) this.#replay(line, index + 1)
    this.#bytes = Buffer.byteLength(lines)
  }

  /** Durable when it returns. Registering the same owner again changes nothing. */
  register(account: string, address: Address, nowMs: number): RegisteredOwner {
    const known = this.#owners.get(account)
    if (known?.latest.address === address) return known.latest
    // Going back to the address that still counts needs no wait: it takes a change back.
    const atOnce = known === undefined || this.usable(account, nowMs)?.address === address
    const usableFromMs = atOnce ? nowMs : nowMs + this.#options.waitMs
    const entry = { account, address, usableFromMs, registeredMs: nowMs }
    this.#append(entry)
    this.#apply(entry)
    return { address, usableFromMs }
  }

  /** Where withdrawals may go now. */
  usable(account: string, nowMs: number): RegisteredOwner | undefined {
    const owners = this.#owners.get(account)
    if (owners === undefined) return undefined
    return owners.latest.usableFromMs <= nowMs ? owners.latest : owners.usable
  }

  close(): void {
    closeSync(this.#descriptor)
  }

  #apply({ account, address, usableFromMs, registeredMs }: Entry): void {
    this.#owners.set(account, { usable: this.usable(account, registeredMs), latest: { address, usableFromMs } })
  }

  #append(entry: Entry): void {
    const seal = this.#sealOf(entry)
    const line = `${JSON.stringify({ ...entry, seal })}\n`
    // What an append that failed has left is cut off first: the journal has whole lines only.
    ftruncateSync(this.#descriptor, this.#bytes)
    writeSync(this.#descriptor, line)
    fdatasyncSync(this.#descriptor)
    this.#bytes += Buffer.byteLength(line)
    this.#seal = seal
  }

  #replay(line: string, number: number): void {
    const { seal, ...entry } = parseEntry(line) ?? {}
    if (seal === undefined || !isEqual(seal, this.#sealOf(entry as Entry))) {
      throw new OwnerRegisterError(this.#options.file, number)
    }
    this.#seal = seal
    this.#apply(entry as Entry)
  }

  /** Each seal covers the one before it: a line can be neither changed nor taken out. */
  #sealOf({ account, address, usableFromMs, registeredMs }: Entry): string {
    const text = [this.#seal, account, address, usableFromMs, registeredMs].join('\n')
    return createHmac('sha256', this.#options.sealingKey).update(text).digest('hex')
  }
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

function isEqual(one: string, other: string): boolean {
  return one.length === other.length && timingSafeEqual(Buffer.from(one), Buffer.from(other))
}

class OwnerRegisterError extends OperatorError {
  constructor(file: string, line: number) {
    super(`${file} was changed by another hand (line ${line}): bring back a copy of it that the signer wrote.`)
  }
}
