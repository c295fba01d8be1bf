import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { childEnvironment } from '../config/config.ts'
import { OperatorError } from '../errors.ts'
import { type ChildRefusal, heartbeat } from './child.ts'

export type SupervisorOptions<Settings, Ready> = {
  /** For people: "settlement", "the signer". */
  readonly name: string
  /** Runs in the child, by `runAsChild`, with nothing of our environment but what `childEnvironment` leaves. */
  readonly module: URL
  /** Settings for this start. `previous` is what the child said when it was last ready, so that it can be started alike. */
  readonly settings: (previous: Ready | undefined) => Settings
  readonly onRestart?: (exit: string) => void
  /** Aborted when the first start is no longer wanted. A child that is ready is stopped by `stop` alone. */
  readonly signal?: AbortSignal | undefined
  readonly readyMsMax?: number
  /** How often a ready child has to answer. One that leaves several heartbeats in a row unanswered hangs, and is killed. */
  readonly heartbeatMs?: number
}

export type SupervisedChild<Ready> = {
  readonly ready: Ready
  stop(): Promise<void>
}

// A busy machine can take more than a minute to load the chain's libraries.
const defaultReadyMsMax = 120_000
const stopMsMax = 5_000
const restartPauseMs = 200
// A child may be busy for many seconds on an overloaded machine; one that is silent for a minute is stopped or deadlocked.
const defaultHeartbeatMs = 15_000
const missedHeartbeatsMax = 4

/**
 * Starts a child process and restarts it whenever it dies or hangs. The child is told to stop over its channel. It runs in a session of its
 * own, so a Ctrl-C or a signal to our process group reaches this process alone: requests under way finish before their helpers
 * stop. When this process is killed the channel closes, which ends the child too.
 */
export async function supervise<Settings extends object, Ready>(
  options: SupervisorOptions<Settings, Ready>,
): Promise<SupervisedChild<Ready>> {
  const stopping = new AbortController()
  let { child, ready } = await start(options, undefined, options.signal)
  let restarting: Promise<void> | undefined
  const watch = (watched: ChildProcess) => {
    const heartbeats = killWhenHung(watched, options.heartbeatMs ?? defaultHeartbeatMs)
    watched.once('exit', (code, signal) => {
      if (stopping.signal.aborted) return
      options.onRestart?.(heartbeats.hasHung ? hungExit : (signal ?? `code ${code}`))
      restarting = restart()
    })
  }
  const restart = async () => {
    for (;;) {
      await sleep(restartPauseMs)
      if (stopping.signal.aborted) return
      try {
        ;({ child, ready } = await start(options, ready, stopping.signal))
        return watch(child)
      } catch (error) {
        options.onRestart?.((error as Error).message)
      }
    }
  }
  watch(child)
  return {
    ready,
    async stop() {
      stopping.abort()
      // A child that is being started at this moment would outlive us.
      await restarting
      if (child.exitCode !== null || child.signalCode !== null) return
      const exited = once(child, 'exit')
      if (child.connected) child.disconnect()
      const killer = setTimeout(() => child.kill('SIGKILL'), stopMsMax)
      await exited
      clearTimeout(killer)
    },
  }
}

async function start<Settings extends object, Ready>(
  { name, module, settings, readyMsMax = defaultReadyMsMax }: SupervisorOptions<Settings, Ready>,
  previous: Ready | undefined,
  unwanted: AbortSignal | undefined,
): Promise<{ readonly child: ChildProcess; readonly ready: Ready }> {
  unwanted?.throwIfAborted()
  const child = fork(module, {
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    env: childEnvironment(),
    detached: true,
  })
  child.send(settings(previous))
  const timeout = AbortSignal.timeout(readyMsMax)
  const signal = unwanted === undefined ? timeout : AbortSignal.any([unwanted, timeout])
  try {
    const first = once(child, 'message', { signal }) as Promise<[Ready | ChildRefusal]>
    const [message] = await Promise.race([first, failOnExit(child, name)])
    if (isRefusal(message)) throw new ChildRefusedError(message.refused)
    return { child, ready: message }
  } catch (error) {
    await kill(child)
    throw timeout.aborted ? new ChildNotReadyError(name, readyMsMax) : error
  }
}

const hungExit = 'it did not answer and was killed'

/**
 * Heartbeats are counted, not timed: when this process itself was suspended, the child must not be blamed for the silence.
 * SIGKILL also ends a process that was stopped by SIGSTOP.
 */
function killWhenHung(child: ChildProcess, heartbeatMs: number): { readonly hasHung: boolean } {
  let missed = 0
  const state = { hasHung: false }
  child.on('message', (message) => {
    if (message === heartbeat) missed = 0
  })
  const timer = setInterval(() => {
    if (!child.connected) return
    if (missed >= missedHeartbeatsMax) {
      state.hasHung = true
      child.kill('SIGKILL')
      return
    }
    missed += 1
    // A channel that closes at this moment is an exit, which is noticed as one.
    child.send(heartbeat, () => {})
  }, heartbeatMs)
  timer.unref()
  child.once('exit', () => clearInterval(timer))
  return state
}

async function failOnExit(child: ChildProcess, name: string): Promise<never> {
  const [code, signal] = await once(child, 'exit')
  throw new Error(`${name} ended while starting (${signal ?? `exit code ${code}`})`)
}

async function kill(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const exited = once(child, 'exit')
  child.kill('SIGKILL')
  await exited
}

function isRefusal(message: unknown): message is ChildRefusal {
  return typeof (message as ChildRefusal | null)?.refused === 'string'
}

/** In the words of the child. */
class ChildRefusedError extends OperatorError {}

class ChildNotReadyError extends OperatorError {
  constructor(name: string, readyMsMax: number) {
    super(
      `${name[0]!.toUpperCase()}${name.slice(1)} was not ready within ${readyMsMax / 1000} s. Is this machine overloaded? Start penny again when it is less busy.`,
    )
  }
}
