import { Button } from '../ui/button.tsx'
import type { Wallet } from './wallet.ts'

type WalletButtonProps = { wallet: Wallet; label?: string; onClick: () => void; busy: boolean }

/** A button with the wallet's own icon and, by default, its name. */
export function WalletButton({ wallet, label = wallet.name, onClick, busy }: WalletButtonProps) {
  return (
    <Button className="h-10 justify-start" onClick={onClick} busy={busy}>
      <img src={wallet.icon} alt="" width={20} height={20} className="rounded-sm" />
      {label}
    </Button>
  )
}
