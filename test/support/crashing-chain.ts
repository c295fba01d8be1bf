import { fork } from 'node:child_process'
import { once } from 'node:events'
import { type ChainServer, startChainServer } from '../../sandbox/chain/server.ts'
import { chainId, contracts, relayer } from './sandbox-chain.ts'

/** Where the plug is pulled: when the step is reached for the n-th time. */
export type Crash = { readonly dataDir: string; readonly step: 'appended' | 'applied'; readonly reach: number }

/** A chain in a process of its own that ends as suddenly as in a power cut. The address is unknown if it is too late. */
export async function startCrashingChain(
  crash: Crash,
): Promise<{ readonly url: string | undefined; readonly exited: Promise<unknown> }> {
  const child = fork(import.meta.filename)
  const exited = once(child, 'exit')
  child.send(crash)
  const [url] = (await Promise.race([once(child, 'message'), exited])) as [string | null]
  return { url: url ?? undefined, exited }
}

async function run({ dataDir, step, reach }: Crash): Promise<ChainServer> {
  let reached = 0
  return startChainServer({
    host: '127.0.0.1',
    port: 0,
    dataDir,
    chainId,
    contracts: contracts(),
    gasHolders: [relayer.address],
    onFailure: () => process.exit(1),
    onStep: (passed) => {
      if (passed === step) reached += 1
      if (reached === reach) process.kill(process.pid, 'SIGKILL')
    },
  })
}

if (import.meta.main) {
  process.on('disconnect', () => process.exit(0))
  process.once('message', async (crash: Crash) => process.send?.((await run(crash)).url))
}
