import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import type { ChildRefusal } from './child.ts'
import { childEnvironment } from './config.ts'
import { OperatorError } from './errors.ts'

export type SupervisorOptions<Settings, Ready> = {
  /** Runs in the child, by `runAsChild`, with nothing of our environment but what `childEnvironment` leaves. */
  readonly module: URL
  /** Settings for this start. `previous` is what the child said when it was last ready, so that it can be started alike. */
  readonly settings: (previous: Ready | undefined) => Settings
  readonly onRestart?: (exit: string) => void
}

export type SupervisedChild<Ready> = {
  readonly ready: Ready
  stop(): Promise<void>
}

const readyMsMax = 30_000
const stopMsMax = 5_000
const restartPauseMs = 200

/**
 * Starts a child process and starts it again whenever it dies. It hears of the end over its channel: a Ctrl-C in the
 * terminal goes to this process alone (the child ignores it), so that requests under way are finished before their
 * helpers go; and when this process is killed outright the channel closes, which ends the child too.
 */
export async function supervise<Settings extends object, Ready>(
  options: SupervisorOptions<Settings, Ready>,
): Promise<SupervisedChild<Ready>> {
  let stopping = false
  let { child, ready } = await start(options, undefined)
  let restarting: Promise<void> | undefined
  const watch = (watched: ChildProcess) => {
    watched.once('exit', (code, signal) => {
      if (stopping) return
      options.onRestart?.(signal ?? `code ${code}`)
      restarting = restart()
    })
  }
  const restart = async () => {
    for (;;) {
      await sleep(restartPauseMs)
      if (stopping) return
      try {
        ;({ child, ready } = await start(options, ready))
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
      stopping = true
      // One that is being started at this moment would outlive us.
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
  { module, settings }: SupervisorOptions<Settings, Ready>,
  previous: Ready | undefined,
): Promise<{ readonly child: ChildProcess; readonly ready: Ready }> {
  const child = fork(module, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'], env: childEnvironment() })
  child.send(settings(previous))
  const signal = AbortSignal.timeout(readyMsMax)
  try {
    const first = once(child, 'message', { signal }) as Promise<[Ready | ChildRefusal]>
    const [message] = await Promise.race([first, failOnExit(child, module)])
    if (isRefusal(message)) throw new ChildRefusedError(message.refused)
    return { child, ready: message }
  } catch (error) {
    child.kill('SIGKILL')
    throw error
  }
}

async function failOnExit(child: ChildProcess, module: URL): Promise<never> {
  const [code, signal] = await once(child, 'exit')
  throw new Error(`${module.pathname.split('/').slice(-2).join('/')} ended at its start (${signal ?? `code ${code}`})`)
}

function isRefusal(message: unknown): message is ChildRefusal {
  return typeof (message as ChildRefusal | null)?.refused === 'string'
}

/** In the words of the child. */
class ChildRefusedError extends OperatorError {}
