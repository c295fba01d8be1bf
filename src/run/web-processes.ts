import type { SandboxReady } from '../../sandbox/start.ts'
import type { Config } from '../config/config.ts'
import { reasonOf } from '../errors.ts'
import { type SupervisedChild, supervise } from '../process/supervisor.ts'
import type { ProviderHealth } from '../providers/provider.ts'
import type { SettlementEndpoints } from '../settlement/settlement-endpoints.ts'
import type { Catalog } from './catalog.ts'
import { askProcess, type ControlAddress, type ControlAnswer } from './control.ts'
import type { StartContext } from './start-context.ts'

/** Settings that the first web process sends to the others. */
export type WebSettings = {
  readonly config: Config
  readonly databaseUrl: string
  /**
   * The models and providers of the first process. A process that starts again must not read the files, which may have been edited: its
   * prices would be unknown to the ledger, and its first charge would freeze it.
   */
  readonly catalog: Catalog
  readonly sandbox: SandboxReady | undefined
  readonly money: SettlementEndpoints | undefined
  readonly publicUrl: string
  /** From 2: the first process is the one that starts the others. */
  readonly processNumber: number
}

export type WebReady = { readonly control: ControlAddress }

/** After the drain: the last writes to the ledger, and closing the connections. */
const lastWritesMs = 30_000

/**
 * The additional processes that serve requests on this machine, on the port of the first. The kernel spreads connections over all of
 * them. Each is a node with its own lease: if it dies, it is started again, and its requests are ended.
 */
export class WebProcesses {
  readonly #children: readonly SupervisedChild<WebReady>[]
  readonly #onError: (error: unknown) => void

  private constructor(children: readonly SupervisedChild<WebReady>[], onError: (error: unknown) => void) {
    this.#children = children
    this.#onError = onError
  }

  static async start(
    { config, log, stack, onProgress, signal }: StartContext,
    settings: () => Omit<WebSettings, 'processNumber'>,
  ): Promise<WebProcesses> {
    const numbers = Array.from({ length: config.webProcesses - 1 }, (_, index) => index + 2)
    if (numbers.length > 0) onProgress(`Starting ${config.webProcesses} web processes.`)
    const starts = numbers.map(async (processNumber) => {
      const child = await supervise<WebSettings, WebReady>({
        name: `web process ${processNumber}`,
        signal,
        readyMsMax: config.childStartMs,
        stopMsMax: config.shutdownDelayMs + config.drainMs + lastWritesMs,
        module: new URL('./web-process.ts', import.meta.url),
        settings: () => ({ ...settings(), processNumber }),
        onRestart: (exit) => log.error({ exit, process: processNumber }, 'a web process exited; restarting it'),
      })
      stack.defer(() => child.stop())
      return child
    })
    // Wait for all even if one fails: those that have started must be stopped too.
    await Promise.allSettled(starts)
    const children = await Promise.all(starts)
    return new WebProcesses(children, (error) => log.warn({ err: error }, 'a web process did not answer'))
  }

  /** The answers of the processes that are running. */
  async ask(method: 'GET' | 'POST', path: string): Promise<readonly ControlAnswer[]> {
    const answers = await Promise.allSettled(this.#children.map(({ ready }) => askProcess(ready.control, method, path)))
    return answers.flatMap((answer) => {
      if (answer.status === 'fulfilled') return [answer.value]
      this.#onError(new Error(reasonOf(answer.reason)))
      return []
    })
  }

  /** Begins to stop all of them, each as its first process does. */
  stop(): void {
    for (const child of this.#children) void child.stop()
  }
}

const statesFromWorst: readonly ProviderHealth['state'][] = ['open', 'half-open', 'closed']

/** Each provider as all processes together see it: the worst state, sums, and the latest failure. */
export function joinHealth(seen: readonly (readonly ProviderHealth[])[]): readonly ProviderHealth[] {
  return [...Map.groupBy(seen.flat(), ({ provider }) => provider)].map(([provider, views]) => {
    const sum = (read: (view: ProviderHealth) => number) => views.reduce((total, view) => total + read(view), 0)
    const timed = views.flatMap(({ firstByteMs }) => firstByteMs ?? [])
    const failures = views.flatMap(({ lastFailure }) => lastFailure ?? [])
    return {
      provider,
      state: statesFromWorst.find((state) => views.some((view) => view.state === state))!,
      requestsUnderWay: sum(({ requestsUnderWay }) => requestsUnderWay),
      concurrencyMax: sum(({ concurrencyMax }) => concurrencyMax),
      modelsOut: [...new Set(views.flatMap(({ modelsOut }) => modelsOut))],
      firstByteMs:
        timed.length === 0 ? undefined : Math.round(timed.reduce((one, other) => one + other) / timed.length),
      succeeded: sum(({ succeeded }) => succeeded),
      failed: sum(({ failed }) => failed),
      lastFailure: failures.sort((one, other) => one.agoMs - other.agoMs)[0],
    }
  })
}
