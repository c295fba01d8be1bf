import type { Session } from '../../api/shapes.ts'
import { useFaucet } from '../../shell/sandbox-bar.tsx'
import { Button } from '../../ui/button.tsx'
import { CopyableId } from '../../ui/copy.tsx'
import { Panel } from '../../ui/panel.tsx'

/** How a wallet account gets its money: nothing is deposited here, the wallet pays each request. */
export function X402Panel({ session, wallet }: { session: Session; wallet: string }) {
  const faucet = useFaucet()
  return (
    <Panel
      title="Payments over x402"
      testId="x402"
      actions={
        session.features.faucet && (
          <Button small change={faucet}>
            Send 25 test USDC to the wallet
          </Button>
        )
      }
    >
      <div className="flex flex-col gap-3">
        <p>
          The wallet of this account pays each request over x402. The unused part of a payment is credit for the next
          request. There is no deposit address.
        </p>
        <p>
          Wallet <CopyableId id={wallet} label="wallet address" short />
        </p>
        <p>
          API keys of this account can spend the credit. To spend more with API keys, sign in with a passkey or another
          wallet: that opens an account with a deposit address.
        </p>
        <p>
          <a href="/docs/x402" className="link">
            How to pay over x402
          </a>
        </p>
      </div>
      <p role="status" className="mt-2 text-sm text-muted">
        {faucet.error?.message ?? faucet.data}
      </p>
    </Panel>
  )
}
