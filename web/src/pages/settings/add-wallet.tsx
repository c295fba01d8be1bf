import { useState } from 'react'
import { call } from '../../api/call.ts'
import { useChange } from '../../shell/use-change.ts'
import { Button } from '../../ui/button.tsx'
import { Dialog } from '../../ui/dialog.tsx'
import { ErrorPanel } from '../../ui/loaded.tsx'
import { useWallets, type Wallet } from '../../wallet/wallet.ts'
import { WalletButton } from '../../wallet/wallet-button.tsx'
import { prepareMessage, sign } from '../sign-in/wallet.ts'

/** Use another wallet of this browser, added by the same signature that signs in. */
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
  const wallets = useWallets()
  const add = useChange(async (wallet: Wallet) => {
    const message = await prepareMessage(wallet)
    await call('addWallet', { body: { message: message.text, signature: await sign(wallet, message) } })
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
