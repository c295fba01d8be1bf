import { type ReactNode, useState } from 'react'
import type { Account, Input, Session } from '../../api/shapes.ts'
import { ConfirmButton } from '../../shell/change-dialog.tsx'
import { Segmented } from '../../ui/field.tsx'
import { useWallets } from '../../wallet/wallet.ts'
import { confirmRemovalWithPasskey, passkeysWork } from '../sign-in/passkey.ts'
import { confirmRemovalWithWallet } from '../sign-in/wallet.ts'

type Props = {
  session: Session
  account: Account
  /** Of the passkey, or the wallet's address. */
  id: string
  name: string
  what: 'passkey' | 'wallet'
  /** Whether the removal needs a confirmation by a passkey or wallet. */
  established: boolean
  remove: (body: Input<'DELETE /api/passkeys/{id}'>['body']) => Promise<unknown>
  children: ReactNode
}

/** Asks first: a removal cannot be undone. What is added again counts as new. */
export function RemoveButton(props: Props) {
  const { session, account, id, name, what, established, remove, children } = props
  const wallets = useWallets()
  const means: (readonly [string, string])[] = [
    ...(account.passkeys.length > 0 && passkeysWork(session) ? [['passkey', 'Passkey'] as const] : []),
    ...(account.wallets.length > 0 ? wallets.map((wallet) => [wallet.id, wallet.name] as const) : []),
  ]
  const [chosen, choose] = useState<string>()
  const by = chosen ?? means[0]?.[0]
  const prove = async () => {
    const wallet = wallets.find((one) => one.id === by)
    if (!established || by === undefined) return {}
    if (wallet === undefined) return { proof: await confirmRemovalWithPasskey(id) }
    return { proof: await confirmRemovalWithWallet(wallet, account, id) }
  }
  return (
    <ConfirmButton
      label="Remove"
      name={name}
      title={`Remove ${what}`}
      action={`Remove ${what}`}
      make={async () => remove(await prove())}
      said={`${what === 'passkey' ? 'Passkey' : 'Wallet'} removed.`}
    >
      {children}
      {established && (
        <div className="mt-3 flex flex-col gap-2">
          <p>
            Confirm it with a passkey or wallet that you have had for the waiting period. It may be this one. A stolen
            session is therefore not enough to lock you out.
          </p>
          {by !== undefined && <Segmented label="Confirm with" value={by} options={means} onChange={choose} />}
        </div>
      )}
    </ConfirmButton>
  )
}
