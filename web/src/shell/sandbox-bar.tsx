import { useMutation, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { call } from '../api/call.ts'
import { useX402Wallet } from '../api/session.ts'
import type { Session } from '../api/shapes.ts'
import { formatPrice } from '../money/format.ts'
import { useAnnounce } from '../ui/announce.tsx'
import { Button } from '../ui/button.tsx'
import { ConfirmButton, leaveFor } from './change-dialog.tsx'

/** Only in the sandbox: actions for developers. */
export function SandboxBar({ session }: { session: Session }) {
  const [said, setSaid] = useState<string>()
  const faucet = useFaucet(setSaid)
  const mine = useSandboxAction(async () => {
    const { block } = await call('POST /api/sandbox/mine', { body: { blocks: 10 } })
    return block === null ? 'The chain advanced by 10 blocks.' : `The chain advanced to block ${block}.`
  }, setSaid)
  const fail = useSandboxAction(async () => {
    await call('POST /api/sandbox/fail-next')
    return 'The next model call will fail.'
  }, setSaid)
  const slow = useSandboxAction(async () => {
    await call('POST /api/sandbox/slow', { body: { milliseconds: 3_000 } })
    return 'The next model call will be delayed by 3 s.'
  }, setSaid)
  if (session.environment !== 'sandbox') return null
  return (
    <section
      aria-label="Sandbox"
      data-testid="sandbox-bar"
      className="flex items-center gap-x-3 overflow-x-auto border-b border-rule bg-held-wash px-4 py-1 whitespace-nowrap md:px-6 print:hidden"
    >
      <p className="text-sm font-medium text-held">
        Sandbox<span className="max-md:sr-only">: test money, simulated model.</span>
      </p>
      <span className="flex gap-1">
        {session.features.faucet && (
          <Button small variant="quiet" change={faucet}>
            Get test USDC
          </Button>
        )}
        {session.features.sandbox_controls && (
          <>
            <Button small variant="quiet" change={mine}>
              Advance chain 10 blocks
            </Button>
            <Button small variant="quiet" change={fail}>
              Fail next call
            </Button>
            <Button small variant="quiet" change={slow}>
              Slow next call 3 s
            </Button>
            {/* The chain cannot be reset: the account is left as it is, and a new one is created. */}
            <ConfirmButton
              label="Reset data"
              title="Reset data"
              action="Start over"
              make={() => call('POST /api/sandbox/reset').then(() => leaveFor('/'))}
            >
              <p>
                You start over with an empty account: no keys, no requests and 25 test USDC. You stay signed in; other
                browsers have to sign in again.
              </p>
              <p>
                Your current account is kept, not deleted: its API keys still work and its receipts stay valid. If it is
                the demo account, the key in <code className="num">sandbox.json</code> belongs to it until the service
                restarts.
              </p>
            </ConfirmButton>
          </>
        )}
      </span>
      {said !== undefined && <p className="text-sm text-muted">{said}</p>}
    </section>
  )
}

/** Test money, any number of times. Balance and deposit steps update live. */
export function useFaucet(onSaid?: (text: string) => void) {
  const client = useQueryClient()
  const wallet = useX402Wallet()
  return useSandboxAction(async () => {
    const { amount } = await call('POST /api/faucet', { body: {} })
    for (const queryKey of [['balance'], ['deposits'], ['overview']]) void client.invalidateQueries({ queryKey })
    const where = wallet === undefined ? '' : ' to your wallet. Deposit it at the gateway to pay with it'
    return `${formatPrice(amount)} of test USDC is on its way${where}.`
  }, onSaid)
}

/** Announces the result or the error; the page shows the latest one. */
function useSandboxAction(action: () => Promise<string>, onSaid?: (text: string) => void) {
  const announce = useAnnounce()
  return useMutation({
    mutationFn: action,
    onSettled: (text, error) => {
      const said = error?.message ?? text!
      announce(said)
      onSaid?.(said)
    },
  })
}
