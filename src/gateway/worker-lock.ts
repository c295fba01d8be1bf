import pg from 'pg'

export type WorkerLockOptions = {
  readonly url: string
  readonly retryMs: number
}

// "gateway" in ASCII, as a lock that nothing else takes.
const lockNumber = '29099032690256249'

/**
 * Of several gateways on one database one works, the others serve. The lock belongs to a connection of its own and goes with
 * it: when the process dies, or cannot be reached, another takes over. Should the old one not have noticed, the
 * database's own constraints keep two workers from sending two things.
 */
export class WorkerLock {
  readonly #options: WorkerLockOptions
  #client: pg.Client | undefined
  #isHeld = false
  #timer: NodeJS.Timeout | undefined
  #stopped = false

  constructor(options: WorkerLockOptions) {
    this.#options = options
  }

  get isHeld(): boolean {
    return this.#isHeld
  }

  /** Tries now, and from then on until it has the lock, and again whenever it is lost. */
  async start(): Promise<void> {
    await this.#try()
    if (!this.#stopped) this.#timer = setTimeout(() => void this.start(), this.#options.retryMs)
  }

  async stop(): Promise<void> {
    this.#stopped = true
    this.#isHeld = false
    clearTimeout(this.#timer)
    await this.#client?.end().catch(() => {})
  }

  async #try(): Promise<void> {
    if (this.#isHeld) return
    try {
      const client = (this.#client ??= await this.#connect())
      const { rows } = await client.query('select pg_try_advisory_lock($1) as taken', [lockNumber])
      this.#isHeld = rows[0].taken === true && this.#client === client && !this.#stopped
    } catch {
      this.#forget()
    }
  }

  async #connect(): Promise<pg.Client> {
    const client = new pg.Client({
      connectionString: this.#options.url,
      application_name: 'penny-gateway worker',
      connectionTimeoutMillis: 5_000,
      query_timeout: 5_000,
      keepAlive: true,
    })
    const lost = () => {
      if (this.#client === client) this.#forget()
    }
    client.on('error', lost)
    client.on('end', lost)
    await client.connect()
    return client
  }

  #forget(): void {
    this.#isHeld = false
    const client = this.#client
    this.#client = undefined
    void client?.end().catch(() => {})
  }
}
