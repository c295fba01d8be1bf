import { reasonOf } from '../errors.ts'
import { createGatewayClient } from '../settlement/gateway-client.ts'
import { readSettlementEndpoints } from '../settlement/settlement-endpoints.ts'
import { CommandError } from './command.ts'

/** The seller's balance at the gateway. One line instead of a stack when the gateway is down: in the sandbox it is part of the service. */
export async function readSellerBalance(dataDir: string): Promise<bigint> {
  const { gatewayUrl, gatewayToken, terms } = readSettlementEndpoints(dataDir)
  await using gatewayClient = createGatewayClient({ url: gatewayUrl, token: gatewayToken, domain: terms.gatewayDomain })
  return await gatewayClient.balance(terms.seller).catch((error: unknown) => {
    throw new CommandError(`The gateway does not respond: ${reasonOf(error)}. Start the service, then try again.`)
  })
}
