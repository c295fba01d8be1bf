import { useQuery, useQueryClient } from '@tanstack/react-query'
import { Link, useNavigate } from '@tanstack/react-router'
import { call, showAccount } from '../../api/call.ts'
import { balanceQuery } from '../../api/queries.ts'
import type { Account, Session } from '../../api/shapes.ts'
import { atomic, formatExact } from '../../money/format.ts'
import { ChangeDialog, DialogButton } from '../../shell/change-dialog.tsx'
import { Panel } from '../../ui/panel.tsx'
import { forgetConversations } from '../playground/kept-conversations.ts'

/** The last panel: what closing does, what stays, and what must be done before. */
export function CloseAccount({ session, account }: { session: Session; account: Account }) {
  return (
    <Panel title="Close account" testId="close-account">
      {session.session?.method === 'local' ? (
        <p className="text-muted">
          This is the sandbox’s demo account and cannot be closed. Use <em>Reset data</em> in the bar above to start
          over.
        </p>
      ) : (
        <>
          <p>
            Closing revokes all keys, ends all sessions and memberships, and deletes the account name and the sign-ins
            of members who have no other account. The ledger keeps every request and receipt.
          </p>
          <MoneyLeft isWalletAccount={account.x402_wallet !== null} />
          <DialogButton
            variant="danger"
            className="mt-3"
            dialog={(close) => <CloseDialog account={account} onClose={close} />}
          >
            Close account
          </DialogButton>
        </>
      )}
    </Panel>
  )
}

/** Shows in advance why the service would refuse to close the account. */
function MoneyLeft({ isWalletAccount }: { isWalletAccount: boolean }) {
  const { data: balance } = useQuery(balanceQuery)
  if (balance === undefined) return null
  const available = atomic(isWalletAccount ? balance.refundable_atomic : balance.available_atomic)
  if (available === 0n) return null
  if (!isWalletAccount && available <= atomic(balance.withdrawal_fee_max_atomic))
    return (
      <p className="mt-3 text-sm text-muted">
        {formatExact(available)} is left. It is less than the withdrawal fee and cannot be withdrawn.
      </p>
    )
  return (
    <p className="mt-3 text-held">
      {formatExact(available)} is {isWalletAccount ? 'refundable' : 'available'}.{' '}
      <Link to="/funds" className="link">
        {isWalletAccount ? 'Refund it first' : 'Withdraw it first'}
      </Link>
      .
    </p>
  )
}

function CloseDialog({ account, onClose }: { account: Account; onClose: () => void }) {
  const client = useQueryClient()
  const navigate = useNavigate()
  const close = async () => {
    await call('DELETE /api/account')
    // Nothing of the account is left in this page either.
    forgetConversations()
    showAccount(undefined)
    client.clear()
    await navigate({ to: '/login', search: { closed: '1' } as never })
  }
  return (
    <ChangeDialog
      title={`Close ${account.name}`}
      action="Close permanently"
      variant="danger"
      make={close}
      said="The account is closed."
      typed={{ label: 'Type the account’s name', name: account.name }}
      onClose={onClose}
    >
      <p>
        Its keys stop working and you can no longer sign in to it. If you have no other account, signing in with the
        same wallet creates a new one.{' '}
        {account.x402_wallet === null
          ? 'Money sent to its deposit address later is still credited to the closed account; contact the operator to get access.'
          : 'The wallet can no longer pay over x402 here.'}
      </p>
    </ChangeDialog>
  )
}
