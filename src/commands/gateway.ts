import { mkdirSync } from 'node:fs'
import { removeSecrets } from '../config.ts'
import { logTo, startGateway } from '../gateway/server.ts'
import { createLog } from '../log.ts'
import { findMoneyLine } from '../settlement/money-line.ts'
import { type Command, CommandError } from './command.ts'
import { aborted, watchStopSignals } from './stop-signal.ts'

const weiPerGwei = 1_000_000_000n

export const gatewayCommand: Command = {
  summary: 'run our own settlement gateway, for operators who want no third party',
  reader: 'gateway',
  usage: `penny gateway                     runs until Ctrl-C or SIGTERM; several on one database share the work
                                    needs GATEWAY_RELAYER_KEY, GATEWAY_TOKEN, DATABASE_URL, CHAIN_RPC_URL, USDC_ADDRESS,
                                    GATEWAY_WALLET_ADDRESS; settles for GATEWAY_PAYEES, by default the service's seller`,
  options: {},
  async run({ config, output }) {
    removeSecrets()
    process.title = 'penny-gateway'
    mkdirSync(config.dataDir, { recursive: true })
    const { stop } = watchStopSignals()
    const log = createLog(config.logLevel, config.dataDir)
    const { rpcUrl, gasPriceMaxGwei, payees = [findSeller(config.dataDir)], ...options } = config.gateway!
    const gateway = await startGateway({
      ...options,
      payees,
      withdrawalMin: config.withdrawalMin,
      chainRpcUrl: rpcUrl,
      gasPriceMax: BigInt(gasPriceMaxGwei) * weiPerGwei,
      ...logTo(log),
    })
    output.write(output.json ? `${JSON.stringify({ url: gateway.url })}\n` : `The gateway is ready at ${gateway.url}\n`)
    await aborted(stop)
    await gateway.stop()
    log.flush()
    return 0
  },
}

/** The gateway has no master key, of which the seller's address follows: a service on the same folder has written it down. */
function findSeller(dataDir: string): string {
  const seller = findMoneyLine(dataDir)?.terms.seller
  if (seller !== undefined) return seller
  throw new CommandError(
    'GATEWAY_PAYEES must be set: the seller address of the service, to which this gateway settles payments.',
  )
}
