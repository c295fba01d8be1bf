import type { Session } from './shapes.ts'

export type Role = NonNullable<Session['person']>['role']

/** Lowest first. The service decides; pages only leave out what it would refuse. */
export const roles: readonly Role[] = ['viewer', 'developer', 'admin', 'owner']

export function hasRole(session: Session, needed: Role): boolean {
  return session.person !== null && roles.indexOf(session.person.role) >= roles.indexOf(needed)
}
