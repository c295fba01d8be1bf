import { operatorActor, writeAccountLog } from '../db/account-log.ts'
import { createLoginToken, loginLink } from '../identity/login-links.ts'
import { accountNamed } from '../ledger/named-account.ts'
import { findControl } from '../run/control.ts'
import { type Command, CommandError } from './command.ts'
import { readSandboxFile } from './sandbox-file.ts'
import { withDatabase } from './with-database.ts'

const minutesDefault = 15
const minutesMax = 24 * 60

export const loginLinkCommand: Command = {
  usage: [
    [
      'penny login-link ACCOUNT',
      'For a customer who lost wallet and passkey. ACCOUNT is an id, a name, or the address of an x402 wallet. Signing in reopens a closed account',
    ],
    ['--minutes N', `How long the link is valid (default: ${minutesDefault})`],
  ],
  options: { minutes: { type: 'string' } },
  wordsMax: 1,
  async run({ words: [wanted], options, config, output }) {
    const minutes = Number(options.minutes ?? minutesDefault)
    if (!Number.isInteger(minutes) || minutes < 1 || minutes > minutesMax)
      throw new CommandError(`--minutes must be a whole number from 1 to ${minutesMax}, got "${options.minutes}".`, 2)
    if (wanted === undefined)
      throw new CommandError('Which account? Give its id or name; penny accounts lists them.', 2)
    const token = await withDatabase(config, async (database) => {
      const { partition, id: accountId } = await accountNamed(database, wanted)
      return database.transaction(async (connection) => {
        const account = { partition, accountId }
        await writeAccountLog(connection, account, { event: 'login_link_created', actor: operatorActor })
        return createLoginToken(connection, account, minutes * 60)
      })
    })
    const sandboxUrl = readSandboxFile(config.dataDir)?.base_url.replace(/\/v1$/, '')
    const publicUrl =
      config.publicUrl ?? findControl(config.dataDir)?.publicUrl ?? sandboxUrl ?? `http://localhost:${config.port}`
    const url = loginLink(publicUrl, token)
    output.write(
      output.json
        ? `${JSON.stringify({ url, minutes })}\n`
        : `${url}\n\nThe link works once, within ${minutes} minutes.\n`,
    )
    return 0
  },
}
