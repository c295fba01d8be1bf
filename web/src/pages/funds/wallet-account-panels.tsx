import { useState } from 'react'
import { parse } from '../../../../src/money/usdc.ts'
import { call } from '../../api/call.ts'
import { hasRole } from '../../api/session.ts'
import type { Balance, Session } from '../../api/shapes.ts'
import { amountError, atomic, formatExact, isAmount } from '../../money/format.ts'
import { useFaucet } from '../../shell/sandbox-bar.tsx'
import { useChange } from '../../shell/use-change.ts'
import { Button } from '../../ui/button.tsx'
import { CopyableId } from '../../ui/copy.tsx'
import { TextField } from '../../ui/field.tsx'
import { Form, useForm } from '../../ui/form.tsx'
import { FormDialog } from '../../ui/form-dialog.tsx'
import { Facts, numeric, Panel } from '../../ui/panel.tsx'
import { payOnce } from './payment-key.ts'

/** An empty amount refunds all of the credit. */
type Agreed = { readonly amount: string; readonly payment: string }

/** Unused credit back to the wallet that paid it. One form, one payment, however often it is reviewed and sent. */
export function RefundPanel({ session, wallet, balance }: { session: Session; wallet: string; balance: Balance }) {
  const refundable = atomic(balance.refundable_atomic)
  const form = useForm({ amount: '' }, ({ amount }) => ({ amount: amountProblem(amount, refundable) }))
  const { amount } = form.fields
  const [agreed, setAgreed] = useState<Agreed>()
  const review = () =>
    setAgreed({ amount, payment: `refund.${session.account?.id}.${amount === '' ? 'all' : parse(amount)}` })
  if (!hasRole(session, 'owner')) {
    return (
      <Panel title="Refund" testId="refund">
        <p className="text-muted">
          Only owners of the account can have its credit refunded. Your role is {session.person?.role}. Ask an owner.
        </p>
      </Panel>
    )
  }
  return (
    <Panel title="Refund" testId="refund">
      <Form onSubmit={() => form.submit(review)}>
        <TextField
          label="Amount"
          amount
          placeholder="All"
          hint={`Refundable: ${formatExact(refundable)}. Leave empty to refund all of it. No fee.`}
          {...form.field('amount')}
        />
        <p className="text-sm text-muted">
          It goes to the wallet’s balance at the settlement gateway, once the payments that it comes from are final on
          chain. Each payment and refund costs gas: what charges have not covered of it stays as credit, which pays for
          requests.
        </p>
        <div>
          <Button type="submit" disabled={refundable <= 0n}>
            Review refund
          </Button>
        </div>
      </Form>
      {agreed !== undefined && (
        <ConfirmRefund
          agreed={agreed}
          refundable={refundable}
          wallet={wallet}
          chain={session.chain?.name ?? 'the chain'}
          onClose={() => setAgreed(undefined)}
          onDone={() => {
            setAgreed(undefined)
            form.reset()
          }}
        />
      )}
    </Panel>
  )
}

function amountProblem(amount: string, refundable: bigint): string | undefined {
  if (amount === '') return undefined
  if (!isAmount(amount)) return amountError
  if (parse(amount) > refundable)
    return `${formatExact(refundable)} is refundable. Held money can be refunded once its requests have ended.`
  return undefined
}

type ConfirmProps = {
  agreed: Agreed
  refundable: bigint
  wallet: string
  chain: string
  onClose: () => void
  onDone: () => void
}

function ConfirmRefund({ agreed: { amount, payment }, refundable, wallet, chain, onClose, onDone }: ConfirmProps) {
  const refund = useChange(async () => {
    await payOnce(payment, (options) => call('POST /api/refunds', { body: amount === '' ? {} : { amount } }, options))
    onDone()
  }, 'Refund requested.')
  return (
    <FormDialog
      title="Confirm refund"
      action={`Refund ${amount === '' ? 'all' : `${amount} USDC`}`}
      change={refund}
      onClose={onClose}
      ifMade="The refund may have been requested. Confirm it again: it will not be made twice."
    >
      <Facts
        rows={[
          ['Amount', numeric(amount === '' ? `All, now ${formatExact(refundable)}` : formatExact(parse(amount)))],
          ['Fee', 'None'],
          ['To', numeric(wallet)],
          ['Chain', chain],
        ]}
      />
    </FormDialog>
  )
}

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
