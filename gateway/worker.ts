import { setTimeout as sleep } from 'node:timers/promises'
import { type CallFate, CallPostponedError } from '../src/chain/lands-once.ts'
import { CallRevertsError, ChainNodeError } from '../src/chain/node.ts'
import type { Database } from '../src/db/database.ts'
import type { OnAlarm } from './alarm.ts'
import { type Batches, confirmBatch, releaseBatch } from './batches.ts'
import type { Reconciler } from './chain/reconciler.ts'
import type { OpenCall, Relayer } from './chain/relayer.ts'
import type { Scanner } from './chain/scanner.ts'
import { rewind } from './chain/state.ts'
import type { Failpoint } from './failpoints.ts'
import type { ForeignBatches } from './foreign-batches.ts'
import { confirmBurnIntent, releaseBurnIntent, type Withdrawals } from './withdrawals.ts'
import type { WorkerLock } from './worker-lock.ts'

export type WorkerOptions = {
  readonly database: Database
  readonly lock: WorkerLock
  readonly scanner: Scanner
  readonly reconciler: Reconciler
  readonly foreignBatches: ForeignBatches
  readonly relayer: Relayer
  readonly batches: Batches
  readonly withdrawals: Withdrawals
  /** Interval between polls of the chain. */
  readonly pollMs: number
  readonly onAlarm: OnAlarm
  readonly failpoint: Failpoint
}

/** After failures the pauses grow up to this many polls. */
const pauseTurnsMax = 10
const stepsPerPollMax = 100

/**
 * The gateway's worker: reads the chain, checks on the call in progress, sends the next one. Each step starts from stored state, so
 * it does not matter whether the previous step succeeded, failed or was interrupted.
 */
export class Worker {
  readonly #options: WorkerOptions
  #stop = new AbortController()
  #wake = new AbortController()
  #running: Promise<void> | undefined
  #failures = 0
  #withdrawsNext = false

  constructor(options: WorkerOptions) {
    this.#options = options
  }

  start(): void {
    this.#running = this.#run()
  }

  /** Polls immediately instead of at the next interval. */
  wake(): void {
    this.#wake.abort()
  }

  /** Waits for the current step. */
  async stop(): Promise<void> {
    this.#stop.abort()
    this.#wake.abort()
    await this.#running
  }

  async #run(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      if (this.#options.lock.isHeld) await this.#steps()
      const pauseMs = this.#options.pollMs * Math.min(2 ** this.#failures, pauseTurnsMax)
      await sleep(pauseMs, undefined, { signal: this.#wake.signal }).catch(() => {})
      if (!this.#stop.signal.aborted) this.#wake = new AbortController()
    }
  }

  async #steps(): Promise<void> {
    try {
      for (let step = 0; step < stepsPerPollMax && !this.#stop.signal.aborted; step += 1) {
        if (!(await this.#step())) break
      }
      this.#failures = 0
    } catch (error) {
      this.#failures += 1
      this.#report(error)
    }
  }

  /** Returns true when there may be more to do immediately. */
  async #step(): Promise<boolean> {
    const { scanner, reconciler, foreignBatches, relayer, batches, withdrawals } = this.#options
    const head = await scanner.scan()
    await reconciler.reconcile(head)
    await foreignBatches.read()
    const open = await relayer.findOpen()
    if (open !== undefined) return this.#handleFate(open, await relayer.pursue(open, head))
    // Alternate, so that neither can delay the other for long.
    this.#withdrawsNext = !this.#withdrawsNext
    const withdraw = () => withdrawals.sendNext(head)
    const settle = () => batches.sendNext()
    const [first, second] = this.#withdrawsNext ? [withdraw, settle] : [settle, withdraw]
    return (await first()) || (await second())
  }

  async #handleFate(call: OpenCall, fate: CallFate): Promise<boolean> {
    const { database, relayer, batches, withdrawals, failpoint, onAlarm } = this.#options
    if (fate.state === 'waiting') return false
    if (fate.state === 'confirmed') {
      await (call.kind === 'batch' ? confirmBatch : confirmBurnIntent)(database, call.id)
      return false
    }
    if (fate.state === 'succeeded' && !(await this.#isInBooks(call))) {
      onAlarm({
        code: 'logs_missing',
        message: `The node returned block ${fate.receipt.block} without the events of our own call.`,
      })
      await rewind(database, fate.receipt.block - 1n)
      return false
    }
    await database.transaction(async (connection) => {
      const isClosed = await relayer.close(connection, call, fate)
      if (!isClosed || fate.state === 'succeeded') return
      if (call.kind === 'batch') await releaseBatch(connection, call.id)
      else if (fate.state === 'reverted') await withdrawals.takeBack(connection, call.id)
      else await releaseBurnIntent(connection, call.id)
    })
    failpoint('call_resolved')
    if (fate.state === 'succeeded') batches.onSucceeded()
    else {
      if (fate.state === 'reverted') batches.onReverted()
      const code = fate.state === 'reverted' ? 'transaction_reverted' : 'transaction_superseded'
      onAlarm({
        code,
        message: `Call ${call.id} (${call.kind}) was ${fate.state}; its payments or withdrawal are sent again.`,
      })
    }
    return true
  }

  /** Whether the contract's own log shows the effect of the call. A receipt alone proves nothing: any node can invent one. */
  async #isInBooks(call: OpenCall): Promise<boolean> {
    const [found] = await this.#options.database.query(
      `select from batches where call = $1 and state = 'settled'
       union all select from burn_intents where call = $1 and state = 'finalized'`,
      [call.id],
    )
    return found !== undefined
  }

  #report(error: unknown): void {
    const { onAlarm } = this.#options
    if (error instanceof CallPostponedError) return
    const message = error instanceof Error ? error.message : String(error)
    if (error instanceof CallRevertsError) onAlarm({ code: 'settlement_refused', message })
    else if (error instanceof ChainNodeError) onAlarm({ code: 'chain_unreachable', message })
    else onAlarm({ code: 'worker_failed', message })
  }
}
