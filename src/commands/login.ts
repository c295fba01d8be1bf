import { createInterface } from 'node:readline/promises'
import { Writable } from 'node:stream'
import { type Command, CommandError } from './command.ts'
import { requestKey } from './device-login.ts'
import { checkLoginFolder, readLogin, removeLogin, writeLogin } from './login-file.ts'
import { readOwnKey } from './remote.ts'
import { interruptedCode } from './stop-signal.ts'

export const loginCommand: Command = {
  usage: [
    [
      'penny login URL',
      'Prints a link. Confirm it in the dashboard, and this machine receives its own key. balance, deposit, usage, logs, keys, quote and chat then use that service',
    ],
    ['--key penny_…', 'Use this key instead'],
    ['--key -', 'Prompt for the key, or read it from standard input'],
  ],
  options: { key: { type: 'string' } },
  wordsMax: 1,
  async run({ words: [url = ''], options, config, output }) {
    if (!URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol))
      throw new CommandError('Which service? penny login https://penny.example', 2)
    const { origin } = new URL(url)
    checkLoginFolder(config)
    const previous = readLogin(config)
    const apiKey = await (options.key === undefined ? requestKey(origin) : readKey(origin, String(options.key)))
    if (apiKey === undefined) return interruptedCode
    const login = { origin, api_key: apiKey }
    // Stored first: only this process knows a key that was just created.
    const file = writeLogin(config, login)
    const key = await readOwnKey(login)
    if (output.json) output.write(`${JSON.stringify({ origin, key_id: key.id, file })}\n`)
    else {
      output.write(
        `Logged in to ${origin} with the key "${key.name}". ${key.available} USDC can be spent. The key is in ${file}.\n`,
      )
      if (previous !== undefined && previous.api_key !== login.api_key)
        output.write(
          `This replaces the login to ${previous.origin}. Its key still works: revoke it in the dashboard if needed.\n`,
        )
    }
    return 0
  },
}

export const logoutCommand: Command = {
  usage: [['penny logout', 'The key itself stays valid; revoke it in the dashboard']],
  options: {},
  async run({ config, output }) {
    const removed = removeLogin(config)
    const line = removed
      ? 'Logged out. The key still works: revoke it in the dashboard if needed.'
      : 'You were not logged in.'
    output.write(output.json ? `${JSON.stringify({ logged_out: removed })}\n` : `${line}\n`)
    return 0
  },
}

/** Checks the key before it is stored: a mistyped key must not replace a working login. */
async function readKey(origin: string, given: string): Promise<string> {
  const apiKey = (given === '-' ? await askSecret('API key: ') : given).trim()
  await readOwnKey({ origin, api_key: apiKey })
  return apiKey
}

/** Prompts without echo on a terminal; otherwise reads standard input. */
async function askSecret(question: string): Promise<string> {
  if (process.stdin.isTTY !== true) return (await process.stdin.toArray()).join('').trim()
  process.stderr.write(question)
  const silent = new Writable({ write: (_chunk, _encoding, done) => done() })
  const terminal = createInterface({ input: process.stdin, output: silent, terminal: true })
  try {
    return await terminal.question('')
  } finally {
    terminal.close()
    process.stderr.write('\n')
  }
}
