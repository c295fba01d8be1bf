import { defaultGrace } from '../chat/answers.ts'
import { runAsChild, type StopCause } from '../process/child.ts'
import { createLog } from '../process/log.ts'
import { askControl, openControl } from './control.ts'
import { openPools } from './databases.ts'
import { openNode, type ServingNode, serveNode } from './open-node.ts'
import { openPort } from './web-node.ts'
import type { WebReady, WebSettings } from './web-processes.ts'

// The main module of an additional process that serves requests on the same port.

const stack = new AsyncDisposableStack()
let node: ServingNode | undefined

runAsChild({ title: 'penny-web', isInBackground: false, start, stop })

async function start({ config, databaseUrl, processNumber, catalog, ...given }: WebSettings): Promise<WebReady> {
  const log = createLog(config.logLevel)
  stack.defer(() => log.flush())
  const context = { config, log, stack, onProgress: () => {}, signal: undefined }
  const databases = openPools(context, databaseUrl)
  const sharedPort = {
    processNumber,
    samplesOfAll: async () => (await askControl(config.dataDir, 'GET', '/metrics')).samples,
  }
  const parts = await openNode(context, { ...given, catalog, databases, sharedPort }, { retryGrace: defaultGrace })
  // Last: as soon as this process listens, it gets requests of customers.
  node = serveNode(context, parts, await openPort(context), { current: catalog })
  return { control: await openControl(context, node.actions) }
}

/** Without the first process this one must not take new requests: the next service on this port does. */
async function stop(cause: StopCause): Promise<void> {
  if (cause === 'requested') await node?.announceStop()
  await stack.disposeAsync()
}
