import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'

/** A part of a bench in its own process: it reports that it is ready, then answers one call at a time. */
export type Child<Ready, Order, Answer> = {
  readonly pid: number
  readonly ready: Ready
  ask(order: Order): Promise<Answer>
  stop(): Promise<void>
}

export async function startChild<Settings extends object, Ready, Order extends object = never, Answer = never>(
  module: URL,
  settings: Settings,
  nodeOptions: readonly string[] = [],
): Promise<Child<Ready, Order, Answer>> {
  const child = fork(module, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'], execArgv: [...nodeOptions] })
  child.send(settings)
  return {
    pid: child.pid!,
    ready: await answerOf<Ready>(child, module),
    ask(order) {
      child.send(order)
      return answerOf<Answer>(child, module)
    },
    async stop() {
      if (child.exitCode !== null || child.signalCode !== null) return
      const exited = once(child, 'exit')
      child.disconnect()
      await exited
    },
  }
}

/** The child's side: `start` gets the settings and returns the function that answers calls. */
export function beChild<Settings, Ready, Order, Answer>(
  start: (settings: Settings) => Promise<{ readonly ready: Ready; answer?(order: Order): Promise<Answer> }>,
): void {
  process.on('SIGINT', () => {})
  process.on('disconnect', () => process.exit(0))
  process.once('message', async (settings) => {
    const { ready, answer } = await start(settings as Settings)
    process.on('message', async (order) => process.send!((await answer!(order as Order)) as object))
    process.send!(ready as object)
  })
}

async function answerOf<Answer>(child: ChildProcess, module: URL): Promise<Answer> {
  const ended = new AbortController()
  const exit = once(child, 'exit', { signal: ended.signal }).then(() => {
    throw new Error(`${module.pathname.split('/').at(-1)} ended before it answered`)
  })
  exit.catch(() => {})
  try {
    const [answer] = (await Promise.race([once(child, 'message', { signal: ended.signal }), exit])) as [Answer]
    return answer
  } finally {
    ended.abort()
  }
}
