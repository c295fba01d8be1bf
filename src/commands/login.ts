import { createInterface } from 'node:readline/promises'
import { Writable } from 'node:stream'
import { managementPrefix } from '../identity/api-key-format.ts'
import { fundsContracts } from '../openapi/contracts/funds.ts'
import { keyContracts } from '../openapi/contracts/keys.ts'
import { CallRefusedError, clientWithKey } from './client.ts'
import { type Command, CommandError } from './command.ts'
import { requestKey } from './device-login.ts'
import { checkLoginFolder, readLogin, removeLogin, writeLogin } from './login-file.ts'
import { interruptedCode } from './stop-signal.ts'

export const loginCommand: Command = {
  usage: [
    [
      'penny login URL',
      'Prints a link. Confirm it in the dashboard, and this machine receives its own key. balance, deposit, usage, requests, receipts, quote, chat and api then use that service',
    ],
    [
      '--key penny_…',
      'Use this key instead. A management key (penny_mgmt_…) is kept beside the API key: keys, webhooks and statements need it',
    ],
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
    const given = await (options.key === undefined ? requestKey(origin) : readKey(origin, String(options.key)))
    if (given === undefined) return interruptedCode
    const kind = given.startsWith(managementPrefix) ? 'management_key' : 'api_key'
    // Stored first: only this process knows a key that was just created.
    const file = writeLogin(config, { ...(previous?.origin === origin && previous), origin, [kind]: given })
    if (kind === 'management_key') {
      if (output.json) output.write(`${JSON.stringify({ origin, file })}\n`)
      else output.write(`Logged in to ${origin} with a management key. It is in ${file}.\n`)
    } else {
      const key = await clientWithKey(origin, given).call(keyContracts.getOwnKey)
      if (output.json) output.write(`${JSON.stringify({ origin, key_id: key.id, file })}\n`)
      else
        output.write(
          `Logged in to ${origin} with the key "${key.name}". ${key.available} USDC can be spent. The key is in ${file}.\n`,
        )
    }
    const isReplaced = previous !== undefined && (previous.origin !== origin || (previous[kind] ?? given) !== given)
    if (isReplaced && !output.json)
      output.write(
        `This replaces the login to ${previous.origin}. Its key still works: revoke it in the dashboard if needed.\n`,
      )
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
  const key = (given === '-' ? await askSecret('API key: ') : given).trim()
  const client = clientWithKey(origin, key)
  if (!client.manages) await client.call(keyContracts.getOwnKey)
  else
    await client.call(fundsContracts.getBalance).catch((error: unknown) => {
      // A valid key may lack this scope.
      if (!(error instanceof CallRefusedError) || error.code !== 'scope_required') throw error
    })
  return key
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
