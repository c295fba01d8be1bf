import { useQuery } from '@tanstack/react-query'
import { sessionQuery } from './queries.ts'
import { hasRole, type Role } from './roles.ts'

/** Whether the person who is signed in has at least this role. False until that is known. */
export function useRole(needed: Role): boolean {
  const { data } = useQuery(sessionQuery)
  return data !== undefined && hasRole(data, needed)
}
