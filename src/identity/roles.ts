/** What a member may do in an account. Each role may do what the ones before it may. */
export const roles = ['viewer', 'developer', 'admin', 'owner'] as const
export type Role = (typeof roles)[number]

/** Whether a member with this role may do what needs that one. */
export function reaches(role: Role, needed: Role): boolean {
  return roles.indexOf(role) >= roles.indexOf(needed)
}
