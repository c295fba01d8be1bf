import { runAsChild } from '../src/process/child.ts'
import { createLog } from '../src/process/log.ts'
import { armFailpoint, type FailpointName } from './failpoints.ts'
import { type GatewayOptions, logTo, startGateway } from './server.ts'

/** Settings of the gateway process, sent over a JSON channel. */
export type GatewaySettings = Omit<
  GatewayOptions,
  'clock' | 'onAlarm' | 'onError' | 'failpoint' | 'gasPriceMax' | 'withdrawalMin'
> & {
  /** Atomic USDC. */
  readonly withdrawalMin: string
  readonly logLevel: Parameters<typeof createLog>[0]
  /** Where this process dies in fault tests, and at which pass of that point. */
  readonly failpoint?: { readonly name: FailpointName; readonly reach: number } | undefined
}

export type GatewayReady = { readonly url: string; readonly port: number }

runAsChild({ title: 'penny-gateway', isInBackground: true, start })

async function start({ logLevel, failpoint, withdrawalMin, ...options }: GatewaySettings): Promise<GatewayReady> {
  const { url, port } = await startGateway({
    ...options,
    withdrawalMin: BigInt(withdrawalMin),
    ...logTo(createLog(logLevel)),
    failpoint: armFailpoint(failpoint),
  })
  return { url, port }
}
