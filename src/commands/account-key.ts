import { existsSync } from 'node:fs'
import { join } from 'node:path'
import type { Config } from '../config/config.ts'
import { isUuid } from '../db/uuid.ts'
import { AccountKeys } from '../signer/account-keys.ts'
import { checksummed } from '../signer/address.ts'
import { loadMasterKey } from '../signer/master-key.ts'
import { CommandError, type Invocation } from './command.ts'

/**
 * Prints the custodial key of one account, from the master key alone: no database, no service, no network. The key can withdraw the
 * balance from the gateway's contract without the service.
 */
export async function printAccountKey({ words: [, id = ''], options, config, output }: Invocation): Promise<number> {
  const account = id.toLowerCase()
  if (!isUuid(account)) throw new CommandError('Which account? Give the full id: penny accounts key ID --yes', 2)
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

/** Never creates a master key: keys derived from a new one would belong to no account. */
async function masterKeyOf({ dataDir, masterKey }: Config): Promise<Buffer> {
  if (masterKey === undefined && !existsSync(join(dataDir, 'master.key'))) {
    throw new CommandError(
      `No master key found. Set MASTER_KEY (with ROLES unset or with jobs), or set DATA_DIR to the folder that contains master.key.`,
    )
  }
  return loadMasterKey(dataDir, masterKey)
}

const warning = `Anyone who sees this key can take all money of the account, at its address and in the gateway's contract, and cannot be
stopped. The running service spends the same money: use penny withdraw as long as it works, and revoke the account's API keys before
you use this key. To continue, add --yes. docs/operations/withdraw.md explains how to leave with it.`
