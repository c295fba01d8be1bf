import { Button } from '../ui/button.tsx'
import type { Wallet } from './wallet.ts'

/** A wallet by the picture, and if nothing else is said the name, that it gives itself. */
export function WalletButton({
  wallet,
  label = wallet.name,
  onClick,
  busy,
}: {
  wallet: Wallet
  label?: string
  onClick: () => void
  busy: boolean
}) {
  return (
    <Button className="h-10 justify-start" onClick={onClick} busy={busy}>
      <img src={wallet.icon} alt="" width={20} height={20} className="rounded-sm" />
      {label}
    </Button>
  )
}
