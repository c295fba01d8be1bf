import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { type ReactNode, useState } from 'react'
import { call } from '../../api/call.ts'
import { sessionQuery, setSession } from '../../api/queries.ts'
import type { Session } from '../../api/shapes.ts'
import { usePageTitle } from '../../shell/page.tsx'
import { EnvironmentBadge } from '../../shell/rail.tsx'
import { Button } from '../../ui/button.tsx'
import { Icon } from '../../ui/icon.tsx'
import { ErrorPanel, Loaded, Skeleton } from '../../ui/loaded.tsx'
import { Notice } from '../../ui/panel.tsx'
import { useWallets, type Wallet } from '../../wallet/wallet.ts'
import { WalletButton } from '../../wallet/wallet-button.tsx'
import { openWithPasskey, passkeysWork, signInWithPasskey } from './passkey.ts'
import { prepareMessage, type SignInMessage, signInWithWallet } from './wallet.ts'
import type { Ways } from './ways.ts'

type SignInProps = { lead: string; invitation?: string | undefined; onSignedIn?: () => void; children?: ReactNode }

/** The form, in place of a page that needs a session. Pages re-render when the session query is set. */
export function SignIn({ lead, invitation, onSignedIn, children }: SignInProps) {
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

type WaysProps = {
  readonly session: Session
  /** To confirm who is signed in: only these ways, and no new account. */
  readonly ways?: Ways
  /** The token of an invitation: the person who signs in joins its account. */
  readonly invitation?: string | undefined
  readonly onSignedIn: (session: Session) => void
}

/** Every way in that this browser and this installation have. */
export function WaysIn({ session, ways, invitation, onSignedIn }: WaysProps) {
  const local = useMutation({ mutationFn: () => call('POST /api/auth/local'), onSuccess: onSignedIn })
  const passkey = useMutation({
    mutationFn: (how: 'sign_in' | 'register') =>
      how === 'sign_in' ? signInWithPasskey(invitation) : openWithPasskey(invitation),
    onSuccess: onSignedIn,
  })
  if (!session.sign_in.allowed) {
    return (
      <Notice tone="error" role="alert">
        {session.sign_in.reason ?? 'You cannot sign in at this address.'}
      </Notice>
    )
  }
  const error = local.error ?? passkey.error
  return (
    <div className="flex flex-col gap-4">
      {(ways?.local ?? session.sign_in.local) && invitation === undefined && (
        <div className="flex flex-col gap-1">
          <Button variant="primary" className="h-10" change={local}>
            Continue as local developer
          </Button>
          <p className="text-sm text-muted">Sandbox only, from this machine only. No wallet or password needed.</p>
        </div>
      )}
      {ways?.wallet !== false && <WalletList session={session} invitation={invitation} onSignedIn={onSignedIn} />}
      {ways?.passkey !== false && passkeysWork(session) && (
        <section aria-label="Passkey" className="flex flex-col gap-2">
          <h2 className="text-sm text-muted">Passkey</h2>
          <Button className="h-10" onClick={() => passkey.mutate('sign_in')} busy={passkey.isPending}>
            Sign in with a passkey
          </Button>
          {ways === undefined && (
            <Button variant="quiet" onClick={() => passkey.mutate('register')} busy={passkey.isPending}>
              {invitation === undefined ? 'Create an account with a new passkey' : 'Join with a new passkey'}
            </Button>
          )}
        </section>
      )}
      {error !== null && <ErrorPanel error={error} />}
    </div>
  )
}

function WalletList({ session, invitation, onSignedIn }: WaysProps) {
  const wallets = useWallets()
  const [prepared, setPrepared] = useState<{ wallet: Wallet; message: SignInMessage }>()
  const prepare = useMutation({
    mutationFn: async (wallet: Wallet) => ({ wallet, message: await prepareMessage(wallet) }),
    onSuccess: setPrepared,
  })
  const submit = useMutation({
    mutationFn: ({ wallet, message }: { wallet: Wallet; message: SignInMessage }) =>
      signInWithWallet(wallet, message, invitation),
    onSuccess: onSignedIn,
  })
  const error = prepare.error ?? submit.error
  return (
    <section aria-label="Wallet" className="flex flex-col gap-2">
      <h2 className="text-sm text-muted">Wallet</h2>
      {wallets.length === 0 && <NoWallet passkeys={passkeysWork(session)} />}
      {prepared === undefined &&
        wallets.map((wallet) => (
          <WalletButton
            key={wallet.id}
            wallet={wallet}
            onClick={() => prepare.mutate(wallet)}
            busy={prepare.isPending}
          />
        ))}
      {prepared !== undefined && (
        <div className="flex flex-col gap-2">
          <p>{prepared.wallet.name} will ask you to sign this text. Signing moves no money.</p>
          <pre
            data-testid="siwe-text"
            className="num overflow-x-auto rounded-md border border-rule bg-sunken p-3 text-xs whitespace-pre-wrap"
          >
            {prepared.message.text}
          </pre>
          <div className="flex gap-2">
            <Button variant="primary" onClick={() => submit.mutate(prepared)} busy={submit.isPending}>
              Sign in with {prepared.wallet.name}
            </Button>
            <Button variant="quiet" onClick={() => setPrepared(undefined)}>
              Back
            </Button>
          </div>
        </div>
      )}
      {error !== null && <ErrorPanel error={error} />}
    </section>
  )
}

const installable = [
  ['MetaMask', 'https://metamask.io/download'],
  ['Rabby', 'https://rabby.io'],
  ['Coinbase Wallet', 'https://www.coinbase.com/wallet/downloads'],
] as const

function NoWallet({ passkeys }: { passkeys: boolean }) {
  return (
    <p className="rounded-md border border-rule bg-sunken px-3 py-2 text-sm text-muted">
      No wallet found in this browser. Install{' '}
      {installable.map(([name, url], at) => (
        <span key={name}>
          {at > 0 && (at === installable.length - 1 ? ' or ' : ', ')}
          <a href={url} rel="noreferrer" target="_blank" className="link">
            {name}
            <Icon name="external" size={12} className="ml-0.5 inline" />
          </a>
        </span>
      ))}
      {passkeys ? ', or use a passkey, which needs no installation.' : '.'}
    </p>
  )
}
