import { startModelServer } from './model/server.ts'

/** What the service asks of its sandbox process. */
export type SandboxSettings = {
  readonly host: string
  /** 0 for any free port; a restart takes the port it had. */
  readonly modelPort: number
  readonly tokensPerSecond: number
}

export type SandboxReady = {
  readonly modelUrl: string
  readonly modelPort: number
}

process.title = 'penny-sandbox'
// The service decides when its sandbox goes: by closing the channel, or by dying.
process.on('SIGINT', () => {})
process.on('disconnect', () => process.exit(0))
process.once('message', async (settings: SandboxSettings) => {
  const model = await startModelServer({
    host: settings.host,
    port: settings.modelPort,
    tokensPerSecond: settings.tokensPerSecond,
  })
  process.send?.({ modelUrl: model.url, modelPort: model.port } satisfies SandboxReady)
})
