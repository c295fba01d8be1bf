import { createInterface } from 'node:readline/promises'
import { Writable } from 'node:stream'
import { type Command, CommandError } from './command.ts'
import { removeLogin, writeLogin } from './login-file.ts'
import { readOwnKey } from './remote.ts'

export const loginCommand: Command = {
  summary: 'use a service as its customer, with an API key',
  usage: `penny login URL                   asks for the key; then balance, usage, logs, keys, quote and chat are about that service
      --key penny_…                   without asking`,
  options: { key: { type: 'string' } },
  wordsMax: 1,
  async run({ words: [url = ''], options, config, output }) {
    if (!URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol))
      throw new CommandError('Say which service: penny login https://penny.example', 2)
    const { origin } = new URL(url)
    const apiKey = typeof options.key === 'string' ? options.key : await askSecret('API key: ')
    const login = { origin, api_key: apiKey.trim() }
    const key = await readOwnKey(login)
    const file = writeLogin(config, login)
    output.write(
      output.json
        ? `${JSON.stringify({ origin, key_id: key.id, file })}\n`
        : `Logged in to ${origin} with the key "${key.name}". ${key.available} USDC can be spent. The key is in ${file}.\n`,
    )
    return 0
  },
}

export const logoutCommand: Command = {
  summary: 'forget the service and the key of penny login',
  usage: 'penny logout',
  options: {},
  async run({ config, output }) {
    const removed = removeLogin(config)
    const line = removed
      ? 'Logged out. The key still works: revoke it in the dashboard if needed.'
      : 'Nobody was logged in.'
    output.write(output.json ? `${JSON.stringify({ logged_out: removed })}\n` : `${line}\n`)
    return 0
  },
}

/** Without showing it; from standard input where that is no terminal. */
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
