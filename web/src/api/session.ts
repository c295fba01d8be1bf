import { useQuery } from '@tanstack/react-query'
import { sessionQuery } from './queries.ts'
import type { Session } from './shapes.ts'

export type Role = NonNullable<Session['person']>['role']

/** Lowest first. The service decides; pages only leave out what it would refuse. */
export const roles: readonly Role[] = ['viewer', 'developer', 'admin', 'owner']

export function hasRole(session: Session, needed: Role): boolean {
  return session.person !== null && roles.indexOf(session.person.role) >= roles.indexOf(needed)
}

/** Whether the person who is signed in has at least this role. False until that is known. */
export function useRole(needed: Role): boolean {
  const { data } = useQuery(sessionQuery)
  return data !== undefined && hasRole(data, needed)
}

/** The wallet of a wallet account, which pays over x402: it has no deposits and no withdrawals. Undefined for every other account. */
export function useX402Wallet(): string | undefined {
  return useQuery(sessionQuery).data?.account?.x402_wallet ?? undefined
}
