import { Button } from '../ui/button.tsx'
import type { Wallet } from './wallet.ts'

/** A wallet by the name and the picture that it gives itself. */
export function WalletButton({ wallet, onClick, busy }: { wallet: Wallet; onClick: () => void; busy: boolean }) {
  return (
    <Button className="h-10 justify-start" onClick={onClick} busy={busy}>
      <img src={wallet.icon} alt="" width={20} height={20} className="rounded-sm" />
      {wallet.name}
    </Button>
  )
}
