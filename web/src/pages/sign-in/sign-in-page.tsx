import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { useEffect, useState } from 'react'
import { call } from '../../api/call.ts'
import { sessionQuery, setSession } from '../../api/queries.ts'
import { ErrorPanel } from '../../ui/loaded.tsx'
import { Notice } from '../../ui/panel.tsx'
import { SignIn } from './sign-in.tsx'

/** `/login`: leads to the overview as soon as there is a session. */
export function SignInPage() {
  const { data: session } = useQuery(sessionQuery)
  const navigate = useNavigate()
  const { closed } = useSearch({ strict: false }) as { closed?: unknown }
  const isSignedIn = session?.signed_in === true
  useEffect(() => {
    if (isSignedIn) void navigate({ to: '/', replace: true })
  }, [isSignedIn, navigate])
  return (
    <SignIn lead="Pay for inference per request, in USDC.">
      {closed !== undefined && (
        <Notice role="status">The account is closed. Its keys are revoked, and you can no longer sign in to it.</Notice>
      )}
      <LinkSignIn />
    </SignIn>
  )
}

/** The printed one-time link carries its token after the #, so that it never reaches a server log. */
function LinkSignIn() {
  const client = useQueryClient()
  const [token] = useState(() => new URLSearchParams(window.location.hash.slice(1)).get('token'))
  const { mutate, error, isPending } = useMutation({
    mutationFn: (given: string) => call('signInWithLink', { body: { token: given } }),
    onSuccess: (entered) => setSession(client, entered),
  })
  useEffect(() => {
    if (token === null) return
    window.history.replaceState(null, '', window.location.pathname + window.location.search)
    mutate(token)
  }, [token, mutate])
  if (isPending) return <p role="status">Signing you in…</p>
  return error === null ? null : <ErrorPanel error={error} />
}
