import { openDatabase } from '../../src/db/database.ts'
import { deliverWebhooks } from '../../src/jobs/deliver-webhooks.ts'
import { armFailpoint } from '../../src/process/failpoints.ts'
import { openSafePost } from '../../src/tools/web-tools.ts'

// The webhook job of a node with the role `jobs`, in its own process, so that it can be killed: a whole node of that role also needs a
// chain, a signer and a gateway, which webhooks do not use.

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
  // The database is killed too: the job continues once it is back.
  onError: () => {},
})
