import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { useEffect, useState } from 'react'
import { call, showAccount } from '../../api/call.ts'
import { invitationQuery, sessionQuery, setSession } from '../../api/queries.ts'
import type { Session } from '../../api/shapes.ts'
import { usePageTitle } from '../../shell/page.tsx'
import { Button } from '../../ui/button.tsx'
import { ErrorPanel, Loaded, Skeleton } from '../../ui/loaded.tsx'
import { Notice } from '../../ui/panel.tsx'
import { Time } from '../../ui/time.tsx'
import { forgetConversations } from '../playground/kept-conversations.ts'
import { SignIn } from './sign-in.tsx'

/** `/login`: leads to the overview as soon as there is a session, or to the account of an invitation. */
export function SignInPage() {
  const { data: session } = useQuery(sessionQuery)
  const navigate = useNavigate()
  const { closed } = useSearch({ strict: false }) as { closed?: unknown }
  const [invitation, setInvitation] = useState(readInvitation)
  // A person who was signed in when the link was opened decides whether to join as that person.
  const [joiner, setJoiner] = useState<Session>()
  useEffect(() => {
    if (session === undefined) return
    if (invitation !== undefined && session.signed_in && joiner === undefined) setJoiner(session)
    else if (session.signed_in && joiner === undefined) void navigate({ to: '/', replace: true })
  }, [session, invitation, joiner, navigate])
  if (invitation !== undefined && joiner !== undefined)
    return <JoinAs session={joiner} invitation={invitation} onSignedOut={() => setJoiner(undefined)} />
  return (
    <SignIn
      lead={invitation === undefined ? 'Pay for inference per request, in USDC.' : 'Sign in to join.'}
      invitation={invitation}
      onSignedIn={() => setInvitation(undefined)}
    >
      {closed !== undefined && (
        <Notice role="status">The account is closed. Its keys are revoked, and you can no longer sign in to it.</Notice>
      )}
      {invitation !== undefined && <InvitationNotice invitation={invitation} />}
      <LinkSignIn />
    </SignIn>
  )
}

/** Like the token of a sign-in link, it is in the fragment (after the #). It stays in the address, so that a reload still has it. */
function readInvitation(): string | undefined {
  return new URLSearchParams(window.location.hash.slice(1)).get('invitation') ?? undefined
}

function InvitationNotice({ invitation }: { invitation: string }) {
  const found = useQuery(invitationQuery(invitation))
  return (
    <Loaded query={found} skeleton={<Skeleton lines={2} />}>
      {({ account_name, role, invited_by, expires_at }) => (
        <Notice role="status">
          {invited_by ?? 'An admin'} invites you to join <strong>{account_name}</strong> as {role}. The invitation works
          once, until <Time at={expires_at} />.
        </Notice>
      )}
    </Loaded>
  )
}

type JoinAsProps = { session: Session; invitation: string; onSignedOut: () => void }

/** For a person who is already signed in. */
function JoinAs({ session, invitation, onSignedOut }: JoinAsProps) {
  usePageTitle('Join an account')
  const client = useQueryClient()
  const join = useMutation({
    // Refused when another person has signed in in another window.
    mutationFn: () =>
      call(
        'POST /api/auth/invitation/accept',
        { body: { token: invitation } },
        { headers: { 'x-router-person': session.person!.id } },
      ),
    // Reload: nothing of the previous account may stay on the page.
    onSuccess: () => window.location.assign('/'),
  })
  const leave = useMutation({
    mutationFn: () => call('POST /api/auth/logout'),
    onSuccess: async () => {
      forgetConversations()
      showAccount(undefined)
      await client.invalidateQueries({ queryKey: sessionQuery.queryKey })
      onSignedOut()
    },
  })
  const error = join.error ?? leave.error
  return (
    <div className="mx-auto flex w-full max-w-sm flex-1 flex-col justify-center gap-6 pb-16">
      <h1 className="text-2xl tracking-tight">Join an account</h1>
      <InvitationNotice invitation={invitation} />
      <Button variant="primary" className="h-10" change={join}>
        <span className="truncate">Join as {session.person?.name}</span>
      </Button>
      <Button variant="quiet" change={leave}>
        Sign out to join as another person
      </Button>
      {error !== null && <ErrorPanel error={error} />}
    </div>
  )
}

/** The printed one-time link carries its token after the #, so that it never reaches a server log. */
function LinkSignIn() {
  const client = useQueryClient()
  const [token] = useState(() => new URLSearchParams(window.location.hash.slice(1)).get('token'))
  const { mutate, error, isPending } = useMutation({
    mutationFn: (given: string) => call('POST /api/auth/link', { body: { token: given } }, { isOfShownAccount: false }),
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
