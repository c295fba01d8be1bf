import { mkdirSync } from 'node:fs'
import { logTo, startGateway } from '../gateway/server.ts'
import { createLog } from '../log.ts'
import type { Command } from './command.ts'
import { aborted, watchStopSignals } from './stop-signal.ts'

const weiPerGwei = 1_000_000_000n

export const gatewayCommand: Command = {
  summary: 'run our own settlement gateway, for operators who want no third party',
  reader: 'gateway',
  usage: `penny gateway                     runs until Ctrl-C or SIGTERM; several on one database share the work
                                    needs GATEWAY_RELAYER_KEY, DATABASE_URL, CHAIN_RPC_URL, USDC_ADDRESS, GATEWAY_WALLET_ADDRESS`,
  options: {},
  async run({ config, output }) {
    process.title = 'penny-gateway'
    mkdirSync(config.dataDir, { recursive: true })
    const { stop } = watchStopSignals()
    const log = createLog(config.logLevel, config.dataDir)
    const { rpcUrl, gasPriceMaxGwei, ...options } = config.gateway!
    const gateway = await startGateway({
      ...options,
      host: config.host,
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
