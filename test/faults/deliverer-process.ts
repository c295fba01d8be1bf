import { openDatabase } from '../../src/db/database.ts'
import { deliverWebhooks } from '../../src/jobs/deliver-webhooks.ts'
import { armFailpoint } from '../../src/process/failpoints.ts'
import { openSafePost } from '../../src/tools/web-tools.ts'

// The webhook job of a node with the role `jobs`, in a process of its own to be killed: such a node also needs a chain, a signer and a
// gateway, which have nothing to do with webhooks.

const { databaseUrl, failpoint } = JSON.parse(process.argv[2]!) as {
  readonly databaseUrl: string
  readonly failpoint?: { readonly name: string; readonly reach: number }
}
deliverWebhooks({
  database: openDatabase({ url: databaseUrl, poolMax: 4, applicationName: 'deliverer' }),
  databaseUrl,
  post: openSafePost({ publicUrl: 'http://127.0.0.1:1', version: 'faults', allowsLoopback: true }),
  failpoint: armFailpoint(failpoint),
  onDisabled: ({ id }, reason) => {
    console.error(`endpoint ${id} was disabled: ${reason}`)
    process.exit(1)
  },
  onAttempt: () => {},
  // The database is killed, too: the job goes on when it is back.
  onError: () => {},
})
