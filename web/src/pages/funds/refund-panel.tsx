import { useMutation, useQueryClient } from '@tanstack/react-query'
import { type FormEvent, useState } from 'react'
import { parse } from '../../../../src/money/usdc.ts'
import { ApiError, call } from '../../api/call.ts'
import { hasRole } from '../../api/roles.ts'
import type { Balance, Session, Withdrawal } from '../../api/shapes.ts'
import { atomic, formatExact } from '../../money/format.ts'
import { useAskSignIn } from '../../shell/providers.tsx'
import { useAnnounce } from '../../ui/announce.tsx'
import { Button } from '../../ui/button.tsx'
import { Dialog } from '../../ui/dialog.tsx'
import { TextField } from '../../ui/field.tsx'
import { ErrorPanel } from '../../ui/loaded.tsx'
import { Facts, Panel } from '../../ui/panel.tsx'
import { isAmount } from '../keys/key-terms.ts'
import { forgetPaymentKey, paymentKey } from './payment-key.ts'

/** An empty amount refunds all of the credit. */
type Agreed = { readonly amount: string; readonly payment: string }

/** Unused credit back to the wallet that paid it. One form, one payment, however often it is reviewed and sent. */
export function RefundPanel({ session, wallet, balance }: { session: Session; wallet: string; balance: Balance }) {
  const credit = atomic(balance.available_atomic)
  const [amount, setAmount] = useState('')
  const [tried, setTried] = useState(false)
  const [agreed, setAgreed] = useState<Agreed>()
  const problem = amountProblem(amount, credit)
  const submit = (event: FormEvent) => {
    event.preventDefault()
    setTried(true)
    if (problem !== undefined) return
    setAgreed({ amount, payment: `refund.${session.account?.id}.${amount === '' ? 'all' : parse(amount)}` })
  }
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
      <form onSubmit={submit} noValidate className="flex flex-col gap-4">
        <TextField
          label="Amount"
          mono
          inputMode="decimal"
          placeholder="All"
          value={amount}
          error={tried ? problem : undefined}
          hint={`Credit: ${formatExact(credit)}. Leave empty to refund all of it. No fee.`}
          onChange={({ target }) => setAmount(target.value.trim())}
          suffix="USDC"
        />
        <p className="text-sm text-muted">
          It goes to the wallet’s balance at the settlement gateway, once the payments that it comes from are final on
          chain.
        </p>
        <div>
          <Button type="submit" disabled={credit <= 0n}>
            Review refund
          </Button>
        </div>
      </form>
      {agreed !== undefined && (
        <ConfirmRefund
          agreed={agreed}
          credit={credit}
          wallet={wallet}
          chain={session.chain?.name ?? 'the chain'}
          onClose={() => setAgreed(undefined)}
          onDone={() => {
            setAgreed(undefined)
            setTried(false)
            setAmount('')
          }}
        />
      )}
    </Panel>
  )
}

function amountProblem(amount: string, credit: bigint): string | undefined {
  if (amount === '') return undefined
  if (!isAmount(amount)) return 'Enter an amount above 0 USDC with at most six decimals.'
  if (parse(amount) > credit)
    return `${formatExact(credit)} is credit. Held money can be refunded once its requests have ended.`
  return undefined
}

type ConfirmProps = {
  agreed: Agreed
  credit: bigint
  wallet: string
  chain: string
  onClose: () => void
  onDone: () => void
}

function ConfirmRefund({ agreed: { amount, payment }, credit, wallet, chain, onClose, onDone }: ConfirmProps) {
  const client = useQueryClient()
  const announce = useAnnounce()
  const askSignIn = useAskSignIn()
  const refund = useMutation({
    mutationFn: (): Promise<Withdrawal> =>
      call(
        'createWalletRefund',
        { body: amount === '' ? {} : { amount } },
        { headers: { 'idempotency-key': paymentKey(payment) } },
      ),
    onSuccess: () => {
      forgetPaymentKey(payment)
      announce('Refund requested.')
      for (const queryKey of [['withdrawals'], ['balance']]) void client.invalidateQueries({ queryKey })
      onDone()
    },
    onError: (error) => {
      if (error instanceof ApiError && /recent/.test(error.code))
        askSignIn({ reason: 'recent', onDone: () => refund.mutate() })
    },
  })
  return (
    <Dialog
      title="Confirm refund"
      onClose={onClose}
      busy={refund.isPending}
      footer={
        <>
          <Button onClick={onClose} disabled={refund.isPending}>
            Cancel
          </Button>
          <Button variant="primary" onClick={() => refund.mutate()} busy={refund.isPending}>
            Refund {amount === '' ? 'all credit' : `${amount} USDC`}
          </Button>
        </>
      }
    >
      <div className="flex flex-col gap-4">
        <Facts
          rows={[
            [
              'Amount',
              <span key="amount" className="num">
                {amount === '' ? `All credit, now ${formatExact(credit)}` : formatExact(parse(amount))}
              </span>,
            ],
            ['Fee', 'None'],
            [
              'To',
              <span key="to" className="num break-all">
                {wallet}
              </span>,
            ],
            ['Chain', chain],
          ]}
        />
        {refund.error !== null && <ErrorPanel error={refund.error} />}
      </div>
    </Dialog>
  )
}
