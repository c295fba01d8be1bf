import { hostname, userInfo } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import type { AnswerOf } from '../openapi/contract.ts'
import type { deviceContracts } from '../openapi/contracts/devices.ts'
import { stopSignals } from '../process/stop-signals.ts'
import { CallRefusedError, send } from './client.ts'
import { CommandError } from './command.ts'

type Started = AnswerOf<typeof deviceContracts.startDeviceLogin>
type State = AnswerOf<typeof deviceContracts.pollDeviceLogin>

const retrySeconds = 5
const cancelMsMax = 3_000

/**
 * Asks a signed-in person for a key: prints a code and a link to standard error, then polls until there is an answer. Undefined
 * when it was interrupted; the code is cancelled then.
 */
export async function requestKey(origin: string): Promise<string | undefined> {
  const stop = new AbortController()
  const onSignal = () => stop.abort()
  for (const signal of stopSignals) process.on(signal, onSignal)
  try {
    const started = await start(origin, stop.signal)
    if (started === undefined) return undefined
    const minutes = Math.round(started.expires_in / 60)
    process.stderr.write(
      `Open this link and confirm the code ${started.user_code}:\n\n  ${started.verification_uri_complete}\n\n` +
        `Waiting for your confirmation, up to ${minutes} minutes. Ctrl-C cancels.\n`,
    )
    const key = await poll(origin, started, stop.signal)
    if (key !== undefined) return key
    await post(origin, '/api/device/cancel', started, AbortSignal.timeout(cancelMsMax)).catch(() => {})
    process.stderr.write(`\nCancelled. The code ${started.user_code} is no longer valid.\n`)
    return undefined
  } finally {
    for (const signal of stopSignals) process.off(signal, onSignal)
  }
}

async function start(origin: string, signal: AbortSignal): Promise<Started | undefined> {
  const request = {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ machine: machineName() }),
    signal,
  }
  try {
    return (await (await send(origin, '/api/auth/device', request)).json()) as Started
  } catch (error) {
    if (signal.aborted) return undefined
    if (error instanceof CallRefusedError && error.status === 404)
      throw new CommandError(
        `${origin} cannot confirm logins in a browser. Use an API key: penny login ${origin} --key -`,
      )
    throw error
  }
}

/** The key; undefined when the signal is aborted first. Throws when the login was declined or has expired. */
async function poll(origin: string, started: Started, signal: AbortSignal): Promise<string | undefined> {
  let seconds = started.interval
  const deadline = performance.now() + started.expires_in * 1000
  for (;;) {
    await sleep(seconds * 1000, undefined, { signal }).catch(() => {})
    if (signal.aborted) return undefined
    // Not aborted by the signal: an answer with the key that is cut off would lose the key.
    const response = await post(origin, '/api/device/poll', started).catch(() => undefined)
    if (response?.ok === true) {
      const state = (await response.json()) as State
      if (state.key !== null) return state.key.secret
      if (state.status === 'declined')
        throw new CommandError('The login was declined in the dashboard. No key was created.')
      if (state.status === 'expired') throw new CommandError(expired)
      seconds = state.interval ?? retrySeconds
    } else if (response !== undefined && response.status < 500 && response.status !== 429) {
      const { error } = (await response.json()) as { error?: { message?: string } }
      throw new CommandError(`${response.status}: ${error?.message ?? 'The login failed.'}`)
    } else {
      // Unreachable or overloaded. The code stays valid, so retry until it expires.
      seconds = Math.max(seconds, retrySeconds)
      if (performance.now() > deadline) throw new CommandError(expired)
    }
  }
}

const expired = 'The code has expired or was used already. Run penny login again to get a new one.'

function post(origin: string, path: string, { device_code }: Started, signal?: AbortSignal): Promise<Response> {
  return fetch(`${origin}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ device_code }),
    ...(signal !== undefined && { signal }),
  })
}

function machineName(): string {
  let user = ''
  try {
    user = `${userInfo().username}@`
  } catch {
    // A user id without a name, as in many containers.
  }
  return `${user}${hostname()}`.slice(0, 100)
}
