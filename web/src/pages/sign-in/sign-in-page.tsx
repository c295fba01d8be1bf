import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { Navigate, useNavigate, useSearch } from '@tanstack/react-router'
import { useEffect, useState } from 'react'
import { call } from '../../api/call.ts'
import { sessionQuery } from '../../api/queries.ts'
import type { Session } from '../../api/shapes.ts'
import { usePageTitle } from '../../shell/page.tsx'
import { EnvironmentBadge } from '../../shell/rail.tsx'
import { ErrorPanel, Loaded, Skeleton } from '../../ui/loaded.tsx'
import { Notice } from '../../ui/panel.tsx'
import { safeNext } from './safe-next.ts'
import { WaysIn } from './ways-in.tsx'

export function SignInPage() {
  usePageTitle('Sign in')
  const session = useQuery(sessionQuery)
  const client = useQueryClient()
  const navigate = useNavigate()
  const { next, closed } = useSearch({ strict: false }) as { next?: string; closed?: unknown }
  const enter = (entered: Session) => {
    client.setQueryData(sessionQuery.queryKey, entered)
    void navigate({ to: safeNext(next), replace: true })
  }
  return (
    <div className="mx-auto flex w-full max-w-sm flex-1 flex-col justify-center gap-6 pb-16">
      <div>
        <h1 className="text-2xl tracking-tight">Sign in</h1>
        <p className="mt-1 text-muted">
          Inference paid per request, in USDC. The first sign-in opens the account; no password is kept anywhere.
        </p>
      </div>
      {closed !== undefined && (
        <Notice role="status">The account is closed: its keys are revoked, and nobody can sign in to it.</Notice>
      )}
      <Loaded query={session} skeleton={<Skeleton lines={4} height={40} />}>
        {(data) => (
          <>
            {data.signed_in && <Navigate to={safeNext(next)} replace />}
            <LinkSignIn onSignedIn={enter} />
            <WaysIn session={data} onSignedIn={enter} />
            <p className="flex items-center gap-2 text-sm text-muted">
              <EnvironmentBadge environment={data.environment} /> {data.sign_in.domain}
            </p>
          </>
        )}
      </Loaded>
    </div>
  )
}

/** The printed one-time link carries its token behind the #, so that no server log ever sees it. */
function LinkSignIn({ onSignedIn }: { onSignedIn: (session: Session) => void }) {
  const [token] = useState(() => new URLSearchParams(window.location.hash.slice(1)).get('token'))
  const { mutate, error, isPending } = useMutation({
    mutationFn: (given: string) => call('signInWithLink', { body: { token: given } }),
    onSuccess: onSignedIn,
  })
  useEffect(() => {
    if (token === null) return
    window.history.replaceState(null, '', window.location.pathname + window.location.search)
    mutate(token)
  }, [token, mutate])
  if (isPending) return <p role="status">Signing you in with the link…</p>
  return error === null ? null : <ErrorPanel error={error} />
}
