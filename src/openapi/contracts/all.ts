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

/** Every documented route, in the order of the document. */
export const contracts: readonly Contract[] = [
  ...Object.values(chatContracts),
  ...Object.values(x402Contracts),
  ...Object.values(signInContracts),
  ...Object.values(deviceContracts),
  ...Object.values(requestContracts),
  ...Object.values(usageContracts),
  ...Object.values(keyContracts),
  ...Object.values(memberContracts),
  ...Object.values(managementKeyContracts),
  ...Object.values(webhookContracts),
  ...Object.values(alertContracts),
  ...Object.values(fundsContracts),
  ...Object.values(statusContracts),
  ...Object.values(operatorContracts),
]
