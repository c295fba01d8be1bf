import { existsSync } from 'node:fs'
import { join } from 'node:path'
import type { Config } from '../config.ts'
import { AccountKeys } from '../signer/account-keys.ts'
import { checksummed } from '../signer/address.ts'
import { loadMasterKey } from '../signer/master-key.ts'
import { CommandError, type Invocation } from './command.ts'

const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

/**
 * Prints the custodial key of one account, from the master key alone: no database, no service, no network. It is the way out
 * that needs nobody: with it the balance is withdrawn from the gateway's contract itself.
 */
export async function printAccountKey({ words: [, id = ''], options, config, output }: Invocation): Promise<number> {
  const account = id.toLowerCase()
  if (!uuid.test(account)) throw new CommandError('Say whose key: penny accounts key ID --yes, with the id in full.', 2)
  if (options.yes !== true) throw new CommandError(warning, 2)
  const { address, privateKey } = new AccountKeys(await masterKeyOf(config)).ofAccount(account)
  const key = { account, address: checksummed(address), private_key: `0x${privateKey.toString('hex')}` }
  output.write(
    output.json
      ? `${JSON.stringify(key)}\n`
      : `Account      ${key.account}\nAddress      ${key.address}\nPrivate key  ${key.private_key}\n\n${warning}\n`,
  )
  return 0
}

/** One that is there already: a key made now would be nobody's. */
async function masterKeyOf({ dataDir, masterKey }: Config): Promise<Buffer> {
  if (masterKey === undefined && !existsSync(join(dataDir, 'master.key'))) {
    throw new CommandError(
      `There is no master key: set MASTER_KEY (and no ROLES without jobs), or DATA_DIR to the folder that has master.key.`,
    )
  }
  return loadMasterKey(dataDir, masterKey)
}

const warning = `Whoever sees this key can take all that the account has, at its address and in the gateway's contract, and nobody can
stop them. While the service runs it spends the same money: withdraw in the usual way (penny withdraw) as long as that works,
and freeze the account's keys before you use this. To go on, add --yes. How to leave with it: docs/operations/withdraw.md`
