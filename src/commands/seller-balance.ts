import { reasonOf } from '../errors.ts'
import { createGatewayClient } from '../settlement/gateway-client.ts'
import { readSettlementEndpoints } from '../settlement/settlement-endpoints.ts'
import { CommandError } from './command.ts'

/** What the seller has at the gateway. One line instead of a stack when the gateway, in the sandbox a part of the service, is stopped. */
export async function readSellerBalance(dataDir: string): Promise<bigint> {
  const { gatewayUrl, gatewayToken, terms } = readSettlementEndpoints(dataDir)
  await using gatewayClient = createGatewayClient({ url: gatewayUrl, token: gatewayToken, domain: terms.gatewayDomain })
  return await gatewayClient.balance(terms.seller).catch((error: unknown) => {
    throw new CommandError(`The gateway does not respond: ${reasonOf(error)}. Start the service, then try again.`)
  })
}
