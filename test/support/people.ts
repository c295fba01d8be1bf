import type { AccountRef } from '../../src/db/account-ref.ts'
import type { Database } from '../../src/db/database.ts'
import { sessionCookie, siteOf } from '../../src/http/origin.ts'
import { addMember, findLinkOwner } from '../../src/identity/members.ts'
import { createPerson } from '../../src/identity/people.ts'
import type { Role } from '../../src/identity/roles.ts'
import { openSession, type SignIn } from '../../src/identity/sessions.ts'
import { DashboardClient } from './dashboard-client.ts'
import type { TestService } from './service.ts'

/** An owner of the account, made if there is none. */
export async function entryOf(database: Database, { partition, accountId }: AccountRef): Promise<SignIn> {
  const account = { partition, accountId }
  return { personId: await database.transaction((connection) => findLinkOwner(connection, account)), account }
}

export type SignedInMember = DashboardClient & { readonly personId: string; readonly account: AccountRef }

/** A new person who is a member of the account and signed in to it. */
export async function signInMember(
  service: Pick<TestService, 'database' | 'origin'>,
  { partition, accountId }: AccountRef,
  role: Role,
): Promise<SignedInMember> {
  const { database, origin } = service
  const account = { partition, accountId }
  const personId = await createPerson(database, `The ${role}`)
  await database.transaction((connection) => addMember(connection, account, { personId, role }))
  const { token } = await openSession(database, { personId, account }, 'passkey', 'test')
  const client = new DashboardClient(service)
  client.cookie = sessionCookie(siteOf(origin), token, 60).split(';', 1)[0]
  return Object.assign(client, { personId, account })
}
