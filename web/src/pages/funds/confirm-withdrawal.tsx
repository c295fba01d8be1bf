import { useState } from 'react'
import { parse } from '../../../../src/money/usdc.ts'
import { call } from '../../api/call.ts'
import type { Account, Session, Withdrawal } from '../../api/shapes.ts'
import { formatExact } from '../../money/format.ts'
import { useChange } from '../../shell/use-change.ts'
import { TextField } from '../../ui/field.tsx'
import { FormDialog } from '../../ui/form-dialog.tsx'
import { Facts, Notice, numeric } from '../../ui/panel.tsx'
import { confirmOwner } from '../sign-in/passkey.ts'
import { forgetPaymentKey, paymentKey } from './payment-key.ts'

/** The terms that the person confirms. They do not change when the account changes meanwhile. */
export type AgreedWithdrawal = {
  readonly amount: string
  readonly address: string
  readonly isNewAddress: boolean
  readonly payment: string
}

type Props = {
  agreed: AgreedWithdrawal
  feeMax: bigint
  time: string | undefined
  session: Session
  account: Account
  known: readonly Withdrawal[]
  onClose: () => void
  /** `isKnown`: the list had this withdrawal before. An earlier attempt was made although its answer was lost. */
  onDone: (isKnown: boolean) => void
}

/** Repeats every value before money moves; an address used for the first time is typed once more. */
export function ConfirmWithdrawal({ agreed, feeMax, time, session, account, known, onClose, onDone }: Props) {
  const { amount, address, isNewAddress, payment } = agreed
  const [typed, setTyped] = useState('')
  const withdraw = useChange(
    async () => {
      if (isNewAddress) {
        const proof = await confirmOwner(session, account, address)
        await call('PUT /api/owner', { body: { address, ...(proof !== undefined && { proof }) } })
      }
      const headers = { 'idempotency-key': paymentKey(payment) }
      const made = await call('POST /api/withdrawals', { body: { amount, recipient: address } }, { headers })
      forgetPaymentKey(payment)
      const isKnown = known.some(({ id }) => id === made.id)
      onDone(isKnown)
      return isKnown
    },
    (isKnown) => (isKnown ? 'This withdrawal had been requested before.' : 'Withdrawal requested.'),
  )
  return (
    <FormDialog
      title="Confirm withdrawal"
      action={`Withdraw ${amount} USDC`}
      change={withdraw}
      disabled={isNewAddress && typed.toLowerCase() !== address.slice(-4).toLowerCase()}
      onClose={onClose}
      ifMade="The withdrawal may have been requested. Confirm it again: it will not be made twice."
    >
      <Facts
        rows={[
          ['Amount', numeric(formatExact(parse(amount)))],
          [
            feeMax === 0n ? 'Fee' : 'Maximum fee (any unused part is returned)',
            feeMax === 0n ? 'none' : numeric(formatExact(feeMax)),
          ],
          ['You receive', numeric(formatExact(parse(amount) - feeMax))],
          ['To', numeric(address)],
          ['Chain', session.chain?.name ?? 'the chain'],
          ['Time', time],
        ]}
      />
      {isNewAddress && (
        <>
          <Notice tone="held">
            This is a new address. It becomes your owner address; changing it later requires a waiting period.
          </Notice>
          <TextField
            label="Type the last four characters of the address"
            mono
            maxLength={4}
            value={typed}
            onChange={setTyped}
          />
        </>
      )}
    </FormDialog>
  )
}
