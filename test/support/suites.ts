import { after, before } from 'node:test'
import type { Database } from '../../src/db/database.ts'
import type { WebTools } from '../../src/tools/web-tools.ts'
import { assertBooksClosed } from './audit.ts'
import { type TestDatabase, testDatabase } from './postgres.ts'
import { type ScriptedUpstream, startScriptedUpstream } from './scripted-upstream.ts'
import { startTestService, type TestService } from './service.ts'

/** A ledger for the tests of one file. After them it must balance, without open holds. */
export function ledgerSuite(): { readonly database: Database } {
  let ledger: TestDatabase | undefined
  before(async () => {
    ledger = await testDatabase()
  })
  after(async () => {
    try {
      await assertBooksClosed(ledger!.database)
    } finally {
      await ledger?.drop()
    }
  })
  return {
    get database() {
      return ledger!.database
    },
  }
}

export type ServiceSuite = { readonly service: TestService; readonly upstream: ScriptedUpstream }

/** The whole service before an upstream that does what each test says, for the tests of one file; audited like a ledger. */
export function serviceSuite(
  environment: Readonly<Record<string, string>> = {},
  prepare: (service: TestService) => Promise<void> = async () => {},
  web?: WebTools,
): ServiceSuite {
  let service: TestService | undefined
  let upstream: ScriptedUpstream | undefined
  before(async () => {
    upstream = await startScriptedUpstream()
    service = await startTestService({ upstreamUrl: upstream.url, environment, ...(web && { web }) })
    // Here and not in a hook of the file's own: those at the top level of a file do not wait for each other.
    await prepare(service)
  })
  after(async () => {
    try {
      await assertBooksClosed(service!.database)
    } finally {
      await service?.stop()
      await upstream?.close()
    }
  })
  return {
    get service() {
      return service!
    },
    get upstream() {
      return upstream!
    },
  }
}
