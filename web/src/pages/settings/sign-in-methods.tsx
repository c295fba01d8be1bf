import { type ReactNode, useState } from 'react'
import { call } from '../../api/call.ts'
import type { Account, Input, Session } from '../../api/shapes.ts'
import { ConfirmButton, DialogButton } from '../../shell/change-dialog.tsx'
import { Item } from '../../shell/resource-panel.tsx'
import { useChange } from '../../shell/use-change.ts'
import { Button } from '../../ui/button.tsx'
import { CopyableId } from '../../ui/copy.tsx'
import { Dialog } from '../../ui/dialog.tsx'
import { Segmented } from '../../ui/field.tsx'
import { ErrorPanel } from '../../ui/loaded.tsx'
import { Panel } from '../../ui/panel.tsx'
import { Time } from '../../ui/time.tsx'
import { useWallets, type Wallet } from '../../wallet/wallet.ts'
import { WalletButton } from '../../wallet/wallet-button.tsx'
import { confirmBy } from '../sign-in/confirm.ts'
import { addPasskey, passkeysWork } from '../sign-in/passkey.ts'
import { prepareMessage, sign } from '../sign-in/wallet.ts'

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
function RemoveButton(props: Props) {
  const { session, account, id, name, what, established, remove, children } = props
  const wallets = useWallets()
  const means: (readonly [string, string])[] = [
    ...(account.passkeys.length > 0 && passkeysWork(session) ? [['passkey', 'Passkey'] as const] : []),
    ...(account.wallets.length > 0 ? wallets.map((wallet) => [wallet.id, wallet.name] as const) : []),
  ]
  const [chosen, choose] = useState<string>()
  const by = chosen ?? means[0]?.[0]
  const prove = async () => {
    if (!established || by === undefined) return {}
    const means = wallets.find((one) => one.id === by) ?? 'passkey'
    return { proof: await confirmBy(means, account, { remove: id }) }
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

export function Passkeys({ session, account }: { session: Session; account: Account }) {
  const add = useChange(() => addPasskey(), 'Passkey added.')
  return (
    <Panel
      title="Passkeys"
      actions={
        passkeysWork(session) && (
          <Button small icon="plus" change={add}>
            Add passkey
          </Button>
        )
      }
    >
      {account.passkeys.length === 0 && (
        <p className="text-muted">No passkeys. A passkey lets you sign in without a wallet.</p>
      )}
      <ul className="flex flex-col gap-2">
        {account.passkeys.map(({ id, name, added_at, established }) => (
          <Item
            key={id}
            name={
              <>
                {name}{' '}
                <span className="text-sm text-muted">
                  since <Time at={added_at} show="day" />
                </span>
              </>
            }
            actions={
              <RemoveButton
                {...{ session, account, id, name, established }}
                what="passkey"
                remove={(body) => call('DELETE /api/passkeys/{id}', { parameters: { id }, body })}
              >
                <p>
                  You can no longer sign in with {name}, added <Time at={added_at} />. A new passkey can confirm a
                  withdrawal address only after a waiting period.
                </p>
              </RemoveButton>
            }
          />
        ))}
      </ul>
      {add.error !== null && <ErrorPanel error={add.error} />}
    </Panel>
  )
}

export function Wallets({ session, account }: { session: Session; account: Account }) {
  return (
    <Panel
      title="Wallets"
      actions={
        <DialogButton small icon="plus" dialog={(close) => <AddWalletDialog onClose={close} />}>
          Add wallet
        </DialogButton>
      }
    >
      {account.wallets.length === 0 && (
        <p className="text-muted">No wallets. You can sign in with a wallet and withdraw to it.</p>
      )}
      <ul className="flex flex-col gap-2">
        {account.wallets.map(({ address, established }) => (
          <Item
            key={address}
            name={<CopyableId id={address} label="address" short />}
            actions={
              <RemoveButton
                {...{ session, account, established }}
                id={address}
                name={address}
                what="wallet"
                remove={(body) => call('DELETE /api/wallets/{address}', { parameters: { address }, body })}
              >
                <p>
                  You can no longer sign in with <span className="num">{address}</span>. If you add it again, it can
                  confirm a withdrawal address only after a waiting period.
                </p>
              </RemoveButton>
            }
          />
        ))}
      </ul>
    </Panel>
  )
}

/** Use another wallet of this browser, added by the same signature that signs in. */
function AddWalletDialog({ onClose }: { onClose: () => void }) {
  const wallets = useWallets()
  const add = useChange(async (wallet: Wallet) => {
    const message = await prepareMessage(wallet)
    await call('POST /api/wallets', { body: { message: message.text, signature: await sign(wallet, message) } })
    onClose()
  }, 'Wallet added.')
  return (
    <Dialog title="Add a wallet" onClose={onClose}>
      <div className="flex flex-col gap-3">
        {wallets.length === 0 && <p className="text-muted">No wallet found in this browser.</p>}
        {wallets.map((wallet) => (
          <WalletButton key={wallet.id} wallet={wallet} onClick={() => add.mutate(wallet)} busy={add.isPending} />
        ))}
        {add.error !== null && <ErrorPanel error={add.error} />}
      </div>
    </Dialog>
  )
}
