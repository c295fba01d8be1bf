import { useQuery } from '@tanstack/react-query'
import { sessionQuery } from '../api/queries.ts'
import { NotFoundPage } from '../pages/not-found.tsx'
import { AppShell } from './app-shell.tsx'

/** Pages for operators only: everyone else sees the not-found page. */
export function OperatorShell() {
  const session = useQuery(sessionQuery)
  if (session.data === undefined && session.error === null) return <div aria-busy="true" />
  return session.data?.operator === true ? <AppShell /> : <NotFoundPage />
}
