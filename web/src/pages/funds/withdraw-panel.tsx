import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { type FormEvent, useState } from 'react'
import { parse } from '../../../../src/money/usdc.ts'
import { withdrawalsQuery } from '../../api/queries.ts'
import { hasRole } from '../../api/roles.ts'
import type { Account, Balance, Session } from '../../api/shapes.ts'
import { amountError, isAmount } from '../../money/amount.ts'
import { atomic, formatExact } from '../../money/format.ts'
import { Button } from '../../ui/button.tsx'
import { TextField } from '../../ui/field.tsx'
import { Panel } from '../../ui/panel.tsx'
import { addressProblem } from './address.ts'
import { type AgreedWithdrawal, ConfirmWithdrawal } from './confirm-withdrawal.tsx'
import { usualTime } from './withdrawal-time.ts'

type Props = { session: Session; account: Account; balance: Balance }
type Form = { readonly amount: string; readonly address: string }

/** Money out, to the registered owner address. One form, one payment, however often it is reviewed and sent. */
export function WithdrawPanel({ session, account, balance }: Props) {
  const [amount, setAmount] = useState('')
  const [typedAddress, setTypedAddress] = useState<string>()
  const [tried, setTried] = useState(false)
  const [agreed, setAgreed] = useState<AgreedWithdrawal>()
  const [wasThere, setWasThere] = useState(false)
  const form: Form = { amount, address: typedAddress ?? account.owner_address ?? '' }
  const available = atomic(balance.available_atomic)
  const feeMax = atomic(balance.withdrawal_fee_max_atomic)
  const { data: withdrawals } = useQuery(withdrawalsQuery)
  const time = withdrawals && usualTime(withdrawals)
  const min = atomic(balance.withdrawal_min_atomic)
  const problems = checkForm(form, { available, feeMax, min }, session, account)
  const submit = (event: FormEvent) => {
    event.preventDefault()
    setTried(true)
    if (problems.amount !== undefined || problems.address !== undefined) return
    setWasThere(false)
    const payment = `withdrawal.${account.id}.${parse(form.amount)}.${form.address.toLowerCase()}`
    setAgreed({ ...form, isNewAddress: account.owner_address === null, payment })
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
      <form onSubmit={submit} noValidate className="flex flex-col gap-4">
        <TextField
          label="Amount"
          mono
          inputMode="decimal"
          value={form.amount}
          error={tried ? problems.amount : undefined}
          hint={`Available: ${formatExact(available)}. Minimum: ${formatExact(min)}. ${feeMax === 0n ? 'No fee.' : `The gateway fee is at most ${formatExact(feeMax)}, taken from the amount.`}`}
          onChange={({ target }) => setAmount(target.value.trim())}
          suffix={
            <>
              <button
                type="button"
                className="rounded-sm px-1.5 font-medium text-link hover:bg-sunken"
                onClick={() => setAmount(balance.available)}
              >
                Max
              </button>
              USDC
            </>
          }
        />
        <TextField
          label="To"
          mono
          value={form.address}
          error={tried ? problems.address : undefined}
          hint={<OwnerHint account={account} />}
          onChange={({ target }) => setTypedAddress(target.value.trim())}
        />
        {time !== undefined && <p className="text-sm text-muted">{time}</p>}
        <div>
          <Button type="submit">Review withdrawal</Button>
        </div>
      </form>
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
            setTried(false)
            setAmount('')
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

function checkForm(
  form: Form,
  { available, feeMax, min }: { available: bigint; feeMax: bigint; min: bigint },
  session: Session,
  account: Account,
): { amount?: string; address?: string } {
  const address = addressProblem(form.address, {
    usdcAddress: session.chain?.usdc_address ?? null,
    depositAddress: account.deposit_address,
    ownerAddress: account.owner_address,
  })
  const amount = !isAmount(form.amount)
    ? amountError
    : parse(form.amount) > available
      ? `${formatExact(available)} is available. Held money can be withdrawn once its requests have ended.`
      : parse(form.amount) <= feeMax
        ? `The gateway fee can be up to ${formatExact(feeMax)}. Enter a larger amount.`
        : parse(form.amount) < min && parse(form.amount) !== available
          ? `The minimum is ${formatExact(min)}, or everything that is available (${formatExact(available)}).`
          : undefined
  return { ...(amount !== undefined && { amount }), ...(address !== undefined && { address }) }
}
