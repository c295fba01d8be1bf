import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { useState } from 'react'
import { parse } from '../../../../src/money/usdc.ts'
import { call } from '../../api/call.ts'
import { withdrawalsQuery } from '../../api/queries.ts'
import { hasRole } from '../../api/session.ts'
import type { Account, Balance, Session, Withdrawal } from '../../api/shapes.ts'
import { amountError, atomic, formatExact, isAmount } from '../../money/format.ts'
import { useChange } from '../../shell/use-change.ts'
import { Button } from '../../ui/button.tsx'
import { TextField } from '../../ui/field.tsx'
import { Form, useForm } from '../../ui/form.tsx'
import { FormDialog } from '../../ui/form-dialog.tsx'
import { Facts, Notice, numeric, Panel } from '../../ui/panel.tsx'
import { confirmOwner } from '../sign-in/confirm.ts'
import { addressProblem } from './address.ts'
import { payOnce } from './payment-key.ts'
import { usualTime } from './withdrawal-time.ts'

type Props = { session: Session; account: Account; balance: Balance }
/** `typed`: the address, until then the owner address. */
type Fields = { readonly amount: string; readonly typed?: string }

/** Money out, to the registered owner address. One form, one payment, however often it is reviewed and sent. */
export function WithdrawPanel({ session, account, balance }: Props) {
  const [agreed, setAgreed] = useState<AgreedWithdrawal>()
  const [wasThere, setWasThere] = useState(false)
  const available = atomic(balance.available_atomic)
  const feeMax = atomic(balance.withdrawal_fee_max_atomic)
  const min = atomic(balance.withdrawal_min_atomic)
  const addressOf = ({ typed }: Fields) => (typed ?? account.owner_address ?? '').trim()
  const { fields, set, field, submit, reset } = useForm<Fields>({ amount: '' }, (form) => ({
    amount: amountProblem(form.amount, { available, feeMax, min }),
    typed: addressProblem(addressOf(form), {
      usdcAddress: session.chain?.usdc_address ?? null,
      depositAddress: account.deposit_address,
      ownerAddress: account.owner_address,
    }),
  }))
  const { amount } = fields
  const address = addressOf(fields)
  const { data: withdrawals } = useQuery(withdrawalsQuery)
  const time = withdrawals && usualTime(withdrawals)
  const review = () => {
    setWasThere(false)
    const payment = `withdrawal.${account.id}.${parse(amount)}.${address.toLowerCase()}`
    setAgreed({ amount, address, isNewAddress: account.owner_address === null, payment })
  }
  if (!session.features.withdrawals) {
    return (
      <Panel title="Withdraw">
        <p className="text-muted">Withdrawals are not available in this installation yet.</p>
      </Panel>
    )
  }
  if (!hasRole(session, 'owner')) {
    return (
      <Panel title="Withdraw" testId="withdraw">
        <p className="text-muted">
          Only owners of the account can withdraw. Your role is {session.person?.role}. Ask an owner.
        </p>
      </Panel>
    )
  }
  return (
    <Panel title="Withdraw" testId="withdraw">
      <Form onSubmit={() => submit(review)}>
        <TextField
          label="Amount"
          amount
          hint={`Available: ${formatExact(available)}. Minimum: ${formatExact(min)}. ${feeMax === 0n ? 'No fee.' : `The gateway fee is at most ${formatExact(feeMax)}, taken from the amount.`}`}
          suffix={
            <>
              <button
                type="button"
                className="rounded-sm px-1.5 font-medium text-link hover:bg-sunken"
                onClick={() => set({ amount: balance.available })}
              >
                Max
              </button>
              USDC
            </>
          }
          {...field('amount')}
        />
        <TextField label="To" mono hint={<OwnerHint account={account} />} {...field('typed')} value={address} />
        {time !== undefined && <p className="text-sm text-muted">{time}</p>}
        <div>
          <Button type="submit">Review withdrawal</Button>
        </div>
      </Form>
      <p role="status" className="mt-2 text-held">
        {wasThere && 'This withdrawal had been requested before. It was not made a second time: see History.'}
      </p>
      {agreed !== undefined && (
        <ConfirmWithdrawal
          agreed={agreed}
          feeMax={feeMax}
          time={time}
          session={session}
          account={account}
          known={withdrawals?.data ?? []}
          onClose={() => setAgreed(undefined)}
          onDone={(isKnown) => {
            setAgreed(undefined)
            reset()
            setWasThere(isKnown)
          }}
        />
      )}
    </Panel>
  )
}

function OwnerHint({ account }: { account: Account }) {
  if (account.owner_address === null)
    return (
      <>The first address you withdraw to becomes your owner address. Withdrawals can only go to the owner address.</>
    )
  return (
    <>
      Your owner address. Withdrawals can only go there.{' '}
      <Link to="/settings" className="link">
        Change it
      </Link>
    </>
  )
}

type Bounds = { available: bigint; feeMax: bigint; min: bigint }

function amountProblem(text: string, { available, feeMax, min }: Bounds): string | undefined {
  if (!isAmount(text)) return amountError
  const amount = parse(text)
  if (amount > available)
    return `${formatExact(available)} is available. Held money can be withdrawn once its requests have ended.`
  if (amount <= feeMax) return `The gateway fee can be up to ${formatExact(feeMax)}. Enter a larger amount.`
  if (amount < min && amount !== available)
    return `The minimum is ${formatExact(min)}, or everything that is available (${formatExact(available)}).`
  return undefined
}

/** The terms that the person confirms. They do not change when the account changes meanwhile. */
type AgreedWithdrawal = {
  readonly amount: string
  readonly address: string
  readonly isNewAddress: boolean
  readonly payment: string
}

type ConfirmProps = {
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
function ConfirmWithdrawal({ agreed, feeMax, time, session, account, known, onClose, onDone }: ConfirmProps) {
  const { amount, address, isNewAddress, payment } = agreed
  const [typed, setTyped] = useState('')
  const withdraw = useChange(
    async () => {
      if (isNewAddress) {
        const proof = await confirmOwner(session, account, address)
        await call('PUT /api/owner', { body: { address, ...(proof !== undefined && { proof }) } })
      }
      const body = { amount, recipient: address }
      const made = await payOnce(payment, (options) => call('POST /api/withdrawals', { body }, options))
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
