import type { Contract } from '../contract.ts'
import { alertContracts } from './alerts.ts'
import { chatContracts } from './chat.ts'
import { deviceContracts } from './devices.ts'
import { fundsContracts } from './funds.ts'
import { keyContracts } from './keys.ts'
import { managementKeyContracts } from './management-keys.ts'
import { memberContracts } from './members.ts'
import { operatorContracts } from './operator.ts'
import { requestContracts } from './requests.ts'
import { signInContracts } from './sign-in.ts'
import { statusContracts } from './status.ts'
import { usageContracts } from './usage.ts'
import { webhookContracts } from './webhooks.ts'
import { x402Contracts } from './x402.ts'

/** Every documented route by subject, in the order of the document. */
export const contractGroups = [
  group('Inference', 'Chat completions, quotes and models', chatContracts),
  group('Wallets', 'Wallets that pay per request over x402, without an account', x402Contracts),
  group('Sign-in', 'Sessions, wallets and passkeys of people, and the account itself', signInContracts),
  group('Device login', 'Sign-in of a command line by a browser', deviceContracts),
  group('Requests', 'The ledger rows of requests', requestContracts),
  group('Usage', 'Sums over requests', usageContracts),
  group('API keys', 'Keys that pay for requests, and their limits', keyContracts),
  group('Members', 'People of an account, invitations and the account log', memberContracts),
  group('Management keys', 'Keys for programs that manage an account', managementKeyContracts),
  group('Webhooks', 'Endpoints and deliveries of events', webhookContracts),
  group('Alerts', 'Rules, fired alerts and mail', alertContracts),
  group('Funds', 'Balance, deposits, withdrawals, statements and receipts', fundsContracts),
  group('Status', 'State of the service', statusContracts),
  group('Operator', 'Pages of the operator', operatorContracts),
]

export const contracts: readonly Contract[] = contractGroups.flatMap<Contract>((each) => each.contracts)

/** One of the contracts, with its exact types. */
export type AnyContract = (typeof contractGroups)[number]['contracts'][number]

function group<Name extends string, Exact extends Contract>(
  name: string,
  about: string,
  contracts: Readonly<Record<Name, Exact>>,
) {
  return { name, about, contracts: Object.values<Exact>(contracts) }
}
