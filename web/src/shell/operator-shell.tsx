import { useQuery } from '@tanstack/react-query'
import { sessionQuery } from '../api/queries.ts'
import { NotFoundPage } from '../pages/not-found.tsx'
import { AppShell } from './app-shell.tsx'

/** Pages for operators only: everyone else sees the not-found page. The shell says when the session could not be read. */
export function OperatorShell() {
  const { data: session } = useQuery(sessionQuery)
  return session === undefined || session.operator ? <AppShell /> : <NotFoundPage />
}
