import { useEffect, useState } from 'react'
import { call } from '../../api/call.ts'
import { Button } from '../../ui/button.tsx'
import { Dialog } from '../../ui/dialog.tsx'
import { ErrorPanel } from '../../ui/loaded.tsx'
import { prepareMessage, sign, type Wallet, watchWallets } from '../sign-in/wallet.ts'
import { useAccountChange } from './account-change.ts'

/** Another wallet of this browser, added by the same signature that signs in. */
export function AddWallet() {
  const [open, setOpen] = useState(false)
  return (
    <>
      <Button small icon="plus" onClick={() => setOpen(true)}>
        Add wallet
      </Button>
      {open && <AddWalletDialog onClose={() => setOpen(false)} />}
    </>
  )
}

function AddWalletDialog({ onClose }: { onClose: () => void }) {
  const [wallets, setWallets] = useState<readonly Wallet[]>([])
  useEffect(
    () => watchWallets((wallet) => setWallets((known) => [...known.filter(({ id }) => id !== wallet.id), wallet])),
    [],
  )
  const add = useAccountChange(async (wallet: Wallet) => {
    const message = await prepareMessage(wallet)
    await call('addWallet', { body: { message: message.text, signature: await sign(wallet, message) } })
    onClose()
  }, 'Wallet added.')
  return (
    <Dialog title="Add a wallet" onClose={onClose}>
      <div className="flex flex-col gap-3">
        {wallets.length === 0 && <p className="text-muted">No wallet was found in this browser.</p>}
        {wallets.map((wallet) => (
          <Button
            key={wallet.id}
            className="h-10 justify-start"
            onClick={() => add.mutate(wallet)}
            busy={add.isPending}
          >
            <img src={wallet.icon} alt="" width={20} height={20} className="rounded-sm" />
            {wallet.name}
          </Button>
        ))}
        {add.error !== null && <ErrorPanel error={add.error} />}
      </div>
    </Dialog>
  )
}
