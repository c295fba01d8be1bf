/** In ascending order: each role includes the rights of the roles before it. */
export const roles = ['viewer', 'developer', 'admin', 'owner'] as const
export type Role = (typeof roles)[number]

export function reaches(role: Role, needed: Role): boolean {
  return roles.indexOf(role) >= roles.indexOf(needed)
}
