import { useMutation, useQueryClient } from '@tanstack/react-query'
import { Link, useNavigate } from '@tanstack/react-router'
import { call, showAccount } from '../api/call.ts'
import type { Session } from '../api/shapes.ts'
import { forgetConversations } from '../pages/playground/kept-conversations.ts'
import { shorten } from '../ui/copy.tsx'
import { Icon } from '../ui/icon.tsx'
import { ErrorPanel } from '../ui/loaded.tsx'
import { menuItemClass, Popover } from '../ui/menu.tsx'

export function AccountMenu({ session }: { session: Session }) {
  const signOut = useSignOut()
  const name = accountName(session)
  return (
    <Popover
      label={`Account: ${name}`}
      above
      buttonClassName="flex h-8 w-full items-center gap-2.5 rounded-md px-2 hover:bg-sunken"
      button={
        <>
          <Icon name="person" />
          <span className="truncate">{name}</span>
        </>
      }
    >
      {(close) => (
        <>
          <OtherAccounts session={session} />
          <Link to="/settings" className={menuItemClass} onClick={close}>
            <Icon name="settings" /> Settings
          </Link>
          <button type="button" className={menuItemClass} onClick={() => signOut.mutate()} disabled={signOut.isPending}>
            <Icon name="external" /> Sign out
          </button>
          {signOut.error !== null && <ErrorPanel error={signOut.error} />}
        </>
      )}
    </Popover>
  )
}

/** The accounts to switch to. Switching reloads the page: nothing of one account may be shown with another. */
export function OtherAccounts({ session }: { session: Session }) {
  const change = useMutation({
    mutationFn: (id: string) => call('POST /api/session/account', { body: { account_id: id } }),
    onSuccess: () => window.location.assign('/'),
  })
  const others = session.person?.accounts.filter(({ id }) => id !== session.account?.id) ?? []
  return (
    <>
      {others.map(({ id, name, role }) => (
        <button
          key={id}
          type="button"
          className={menuItemClass}
          onClick={() => change.mutate(id)}
          disabled={change.isPending}
        >
          <Icon name="person" /> <span className="truncate">Switch to {name}</span>
          <span className="text-sm text-muted">{role}</span>
        </button>
      ))}
      {change.error !== null && <ErrorPanel error={change.error} />}
    </>
  )
}

export function accountName({ account }: Session): string {
  if (account === null) return 'Account'
  return account.name || shorten(account.wallets[0]?.address ?? account.id, 6, 4)
}

export function useSignOut() {
  const client = useQueryClient()
  const navigate = useNavigate()
  return useMutation({
    mutationFn: () => call('POST /api/auth/logout'),
    onSuccess: async () => {
      forgetConversations()
      showAccount(undefined)
      client.clear()
      await navigate({ to: '/login' })
    },
  })
}
