import { PassThrough, Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { pathToFileURL } from 'node:url'
import type { Ended } from './penny-command.ts'

// A process that runs `penny` again and again. To load the program takes most of the time of a command.

export type KeptCall = {
  readonly args: readonly string[]
  readonly environment: Readonly<Record<string, string>>
  readonly input: string
}

const main = pathToFileURL(process.argv[2]!)
let calls = 0

process.on('message', (call: KeptCall) => void run(call).then((ended) => process.send!({ ended })))
process.on('disconnect', () => process.exit())

async function run({ args, environment, input }: KeptCall): Promise<Ended> {
  process.argv = [process.execPath, main.pathname, ...args]
  for (const name of Object.keys(process.env)) delete process.env[name]
  Object.assign(process.env, environment)
  const [stdout, stderr] = [new PassThrough(), new PassThrough()]
  const written = Promise.all([text(stdout), text(stderr)])
  for (const [name, stream] of Object.entries({ stdin: Readable.from([input]), stdout, stderr }))
    Object.defineProperty(process, name, { value: stream, configurable: true })
  process.exitCode = undefined
  calls += 1
  // Another name is another module: it runs again, and what it imports is loaded already.
  await import(`${main.href}?${calls}`)
  stdout.end()
  stderr.end()
  const [told, complaint] = await written
  return { code: Number(process.exitCode ?? 0), stdout: told, stderr: complaint }
}
