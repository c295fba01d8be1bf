import { useQuery } from '@tanstack/react-query'
import { sessionQuery } from '../api/queries.ts'
import { NotFoundPage } from '../pages/not-found.tsx'
import { AppShell } from './app-shell.tsx'

/** Pages that exist for an operator alone: everybody else sees the page of an address that is not there. */
export function OperatorShell() {
  const session = useQuery(sessionQuery)
  if (session.data === undefined && session.error === null) return <div aria-busy="true" />
  return session.data?.operator === true ? <AppShell /> : <NotFoundPage />
}
