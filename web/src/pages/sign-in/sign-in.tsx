import { useQuery, useQueryClient } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import { sessionQuery, setSession } from '../../api/queries.ts'
import type { Session } from '../../api/shapes.ts'
import { usePageTitle } from '../../shell/page.tsx'
import { EnvironmentBadge } from '../../shell/rail.tsx'
import { Loaded, Skeleton } from '../../ui/loaded.tsx'
import { WaysIn } from './ways-in.tsx'

/** The form, in place of a page that needs a session. Every page that reads the session follows it as soon as it is there. */
export function SignIn({
  lead,
  invitation,
  onSignedIn,
  children,
}: {
  lead: string
  invitation?: string | undefined
  onSignedIn?: () => void
  children?: ReactNode
}) {
  usePageTitle('Sign in')
  const session = useQuery(sessionQuery)
  const client = useQueryClient()
  const enter = (entered: Session) => {
    onSignedIn?.()
    void setSession(client, entered)
  }
  return (
    <div className="mx-auto flex w-full max-w-sm flex-1 flex-col justify-center gap-6 pb-16">
      <div>
        <h1 className="text-2xl tracking-tight">Sign in</h1>
        <p className="mt-1 text-muted">
          {lead} {invitation === undefined && 'Your first sign-in creates an account. '}There are no passwords.
        </p>
      </div>
      {children}
      <Loaded query={session} skeleton={<Skeleton lines={4} height={40} />}>
        {(data) => (
          <>
            <WaysIn session={data} invitation={invitation} onSignedIn={enter} />
            <p className="flex items-center gap-2 text-sm text-muted">
              <EnvironmentBadge environment={data.environment} /> {data.sign_in.domain}
            </p>
          </>
        )}
      </Loaded>
    </div>
  )
}
