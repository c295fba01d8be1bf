import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { childEnvironment } from '../config/config.ts'
import { OperatorError } from '../errors.ts'
import { type ChildRefusal, heartbeat, stopMessage } from './child.ts'

export type SupervisorOptions<Settings, Ready> = {
  /** Human-readable name: "settlement", "the signer". */
  readonly name: string
  /**
   * Main module of the child, which calls `runAsChild`. It gets only the environment variables that `childEnvironment` passes on.
   */
  readonly module: URL
  /**
   * Settings for this start. `previous` is the child's last ready message, so that a restart can use the same values (such as a
   * port).
   */
  readonly settings: (previous: Ready | undefined) => Settings
  readonly onRestart?: (exit: string) => void
  /** Aborts the first start. A child that is ready is stopped only by `stop`. */
  readonly signal?: AbortSignal | undefined
  readonly readyMsMax?: number
  /** How long the child may take to finish its work after `stop`. Then it is killed. */
  readonly stopMsMax?: number
  /** Interval of heartbeats to a ready child. A child that misses several in a row hangs, and is killed. */
  readonly heartbeatMs?: number
}

export type SupervisedChild<Ready> = {
  /** The ready message of its latest start. */
  readonly ready: Ready
  stop(): Promise<void>
}

// A busy machine can take more than a minute to load the chain's libraries.
const defaultReadyMsMax = 120_000
const defaultStopMsMax = 5_000
const restartPauseMs = 200
// A child may be busy for many seconds on an overloaded machine. One that is silent for a minute is suspended or deadlocked.
const defaultHeartbeatMs = 15_000
const missedHeartbeatsMax = 4

/**
 * Starts a child process and restarts it whenever it exits or hangs. The stop command goes over the channel. The child runs in its
 * own session, so a Ctrl-C or a signal to our process group reaches only this process: requests in flight finish before their
 * helpers stop. When this process is killed, the channel closes, which ends the child too.
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
    get ready() {
      return ready
    },
    async stop() {
      stopping.abort()
      // A child that is starting right now would outlive this process.
      await restarting
      if (child.exitCode !== null || child.signalCode !== null) return
      const exited = once(child, 'exit')
      if (child.connected) child.send(stopMessage, () => child.connected && child.disconnect())
      const killer = setTimeout(() => child.kill('SIGKILL'), options.stopMsMax ?? defaultStopMsMax)
      await exited
      clearTimeout(killer)
    },
  }
}

async function start<Settings extends object, Ready>(
  { name, module, settings, readyMsMax = defaultReadyMsMax }: SupervisorOptions<Settings, Ready>,
  previous: Ready | undefined,
  cancelled: AbortSignal | undefined,
): Promise<{ readonly child: ChildProcess; readonly ready: Ready }> {
  cancelled?.throwIfAborted()
  const child = fork(module, {
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    env: childEnvironment(),
    detached: true,
    // Settings contain amounts, which are bigints.
    serialization: 'advanced',
  })
  // Too many open files, for example. Without a listener the error would end this process, and the requests that it serves.
  if (child.pid === undefined) throw (await once(child, 'error'))[0]
  child.send(settings(previous))
  const timeout = AbortSignal.timeout(readyMsMax)
  const signal = cancelled === undefined ? timeout : AbortSignal.any([cancelled, timeout])
  try {
    const first = once(child, 'message', { signal }) as Promise<[Ready | ChildRefusal]>
    const [message] = await Promise.race([first, failOnExit(child, name)])
    if (isRefusal(message)) throw new OperatorError(message.refused)
    return { child, ready: message }
  } catch (error) {
    await kill(child)
    throw timeout.aborted
      ? new OperatorError(
          `${name[0]!.toUpperCase()}${name.slice(1)} was not ready within ${readyMsMax / 1000} s. Is this machine overloaded? Start penny again when it is less busy, or raise CHILD_START_MS.`,
        )
      : error
  }
}

const hungExit = 'it did not answer and was killed'

/**
 * Counts heartbeats instead of measuring time: when this process itself was suspended, the child is not to blame for the silence.
 * SIGKILL also ends a process that SIGSTOP has suspended.
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
    // If the channel closes now, the exit event reports it.
    child.send(heartbeat, () => {})
  }, heartbeatMs)
  timer.unref()
  child.once('exit', () => clearInterval(timer))
  return state
}

async function failOnExit(child: ChildProcess, name: string): Promise<never> {
  const [code, signal] = await once(child, 'exit')
  throw new Error(`${name} exited while starting (${signal ?? `exit code ${code}`})`)
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
