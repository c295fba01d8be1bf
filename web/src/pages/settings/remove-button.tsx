import { type ReactNode, useState } from 'react'
import type { Input } from '../../api/routes.ts'
import type { Account, Session } from '../../api/shapes.ts'
import { useChange } from '../../shell/use-change.ts'
import { Button } from '../../ui/button.tsx'
import { Segmented } from '../../ui/field.tsx'
import { FormDialog } from '../../ui/form-dialog.tsx'
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
  remove: (body: Input<'removePasskey'>['body']) => Promise<unknown>
  children: ReactNode
}

/** Asks first: a removal cannot be undone. What is added again counts as new. */
export function RemoveButton({ name, what, ...props }: Props) {
  const [isAsking, setIsAsking] = useState(false)
  return (
    <>
      <Button small variant="quiet" onClick={() => setIsAsking(true)}>
        Remove<span className="sr-only"> {name}</span>
      </Button>
      {isAsking && <RemoveDialog {...props} name={name} what={what} onClose={() => setIsAsking(false)} />}
    </>
  )
}

function RemoveDialog(props: Props & { onClose: () => void }) {
  const { session, account, id, what, established, remove, children, onClose } = props
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
  const change = useChange(
    async () => {
      await remove(await prove())
      onClose()
    },
    `${what === 'passkey' ? 'Passkey' : 'Wallet'} removed.`,
  )
  const title = `Remove ${what}`
  return (
    <FormDialog title={title} action={title} variant="danger" change={change} onClose={onClose}>
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
    </FormDialog>
  )
}
