import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { type FormEvent, useState } from 'react'
import { parse } from '../../../../src/money/usdc.ts'
import { ApiError, call } from '../../api/call.ts'
import { withdrawalsQuery } from '../../api/queries.ts'
import { hasRole } from '../../api/roles.ts'
import type { Account, Balance, Session, Withdrawal } from '../../api/shapes.ts'
import { atomic, formatExact } from '../../money/format.ts'
import { useAskSignIn } from '../../shell/providers.tsx'
import { useAnnounce } from '../../ui/announce.tsx'
import { Button } from '../../ui/button.tsx'
import { Dialog } from '../../ui/dialog.tsx'
import { TextField } from '../../ui/field.tsx'
import { ErrorPanel } from '../../ui/loaded.tsx'
import { Facts, Notice, Panel } from '../../ui/panel.tsx'
import { isAmount } from '../keys/key-terms.ts'
import { confirmOwner } from '../sign-in/passkey.ts'
import { addressProblem } from './address.ts'
import { forgetPaymentKey, paymentKey } from './payment-key.ts'
import { usualTime } from './withdrawal-time.ts'

type Props = { session: Session; account: Account; balance: Balance }
type Form = { readonly amount: string; readonly address: string }
/** The terms that the person confirmed. They do not change when the account changes meanwhile. */
type Agreed = Form & { readonly isNewAddress: boolean; readonly payment: string }

/** Money out, to the registered owner address. One form, one payment, however often it is reviewed and sent. */
export function WithdrawPanel({ session, account, balance }: Props) {
  const [amount, setAmount] = useState('')
  const [typedAddress, setTypedAddress] = useState<string>()
  const [tried, setTried] = useState(false)
  const [agreed, setAgreed] = useState<Agreed>()
  const [wasThere, setWasThere] = useState(false)
  const form: Form = { amount, address: typedAddress ?? account.owner_address ?? '' }
  const available = atomic(balance.available_atomic)
  const feeMax = atomic(balance.withdrawal_fee_max_atomic)
  const { data: withdrawals } = useQuery(withdrawalsQuery)
  const time = withdrawals && usualTime(withdrawals)
  const min = atomic(session.chain?.withdrawal_min_atomic ?? '0')
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
          hint={`Available: ${formatExact(available)}. ${feeMax === 0n ? 'No fee.' : `The gateway fee is at most ${formatExact(feeMax)}.`}`}
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
    ? 'Enter an amount above 0 USDC with at most six decimals.'
    : parse(form.amount) > available
      ? `${formatExact(available)} is available. Held money can be withdrawn once its requests have ended.`
      : parse(form.amount) <= feeMax
        ? `The gateway fee can be up to ${formatExact(feeMax)}. Enter a larger amount.`
        : parse(form.amount) < min && parse(form.amount) !== available
          ? `The minimum is ${formatExact(min)}, or everything that is available (${formatExact(available)}).`
          : undefined
  return { ...(amount !== undefined && { amount }), ...(address !== undefined && { address }) }
}

/** Repeats every value before money moves; an address used for the first time is typed once more. */
function ConfirmWithdrawal({
  agreed,
  feeMax,
  time,
  session,
  account,
  known,
  onClose,
  onDone,
}: {
  agreed: Agreed
  feeMax: bigint
  time: string | undefined
  session: Session
  account: Account
  known: readonly Withdrawal[]
  onClose: () => void
  onDone: (isKnown: boolean) => void
}) {
  const client = useQueryClient()
  const announce = useAnnounce()
  const askSignIn = useAskSignIn()
  const [typed, setTyped] = useState('')
  const lastFour = agreed.address.slice(-4)
  const withdraw = useMutation({
    /** Whether the list had this withdrawal before: an earlier attempt was made although its answer was lost. */
    mutationFn: async (): Promise<boolean> => {
      if (agreed.isNewAddress) {
        const proof = await confirmOwner(session, account, agreed.address)
        await call('setOwner', { body: { address: agreed.address, ...(proof !== undefined && { proof }) } })
      }
      const made = await call(
        'createWithdrawal',
        { body: { amount: agreed.amount, recipient: agreed.address } },
        { headers: { 'idempotency-key': paymentKey(agreed.payment) } },
      )
      return known.some(({ id }) => id === made.id)
    },
    onSuccess: (isKnown) => {
      forgetPaymentKey(agreed.payment)
      announce(isKnown ? 'This withdrawal had been requested before.' : 'Withdrawal requested.')
      for (const queryKey of [['withdrawals'], ['balance'], ['session']]) void client.invalidateQueries({ queryKey })
      onDone(isKnown)
    },
    onError: (error) => {
      if (error instanceof ApiError && /recent/.test(error.code))
        askSignIn({ reason: 'recent', onDone: () => withdraw.mutate() })
    },
  })
  return (
    <Dialog
      title="Confirm withdrawal"
      onClose={onClose}
      busy={withdraw.isPending}
      footer={
        <>
          <Button onClick={onClose} disabled={withdraw.isPending}>
            Cancel
          </Button>
          <Button
            variant="primary"
            disabled={agreed.isNewAddress && typed.toLowerCase() !== lastFour.toLowerCase()}
            onClick={() => withdraw.mutate()}
            busy={withdraw.isPending}
          >
            Withdraw {agreed.amount} USDC
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
                {formatExact(parse(agreed.amount))}
              </span>,
            ],
            [
              feeMax === 0n ? 'Fee' : 'Maximum fee (any unused part is returned)',
              <span key="fee" className="num">
                {formatExact(feeMax)}
              </span>,
            ],
            [
              'You receive',
              <span key="get" className="num">
                {formatExact(parse(agreed.amount) - feeMax)}
              </span>,
            ],
            [
              'To',
              <span key="to" className="num break-all">
                {agreed.address}
              </span>,
            ],
            ['Chain', session.chain?.name ?? 'the chain'],
            ...(time === undefined ? [] : [['Time', time] as const]),
          ]}
        />
        {agreed.isNewAddress && (
          <>
            <Notice tone="held">
              This is a new address. It becomes your owner address; changing it later requires a waiting period.
            </Notice>
            <TextField
              label="Type the last four characters of the address"
              mono
              maxLength={4}
              value={typed}
              onChange={({ target }) => setTyped(target.value)}
            />
          </>
        )}
        {withdraw.error !== null && <ErrorPanel error={withdraw.error} />}
      </div>
    </Dialog>
  )
}
