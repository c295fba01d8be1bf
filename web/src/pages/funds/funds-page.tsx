import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { balanceQuery, depositsQuery, sessionQuery, solvencyQuery } from '../../api/queries.ts'
import type { Account, Balance as BalanceShape } from '../../api/shapes.ts'
import { atomic } from '../../money/format.ts'
import { Page } from '../../shell/page.tsx'
import { Balance, Sum } from '../../ui/amount.tsx'
import { classNames } from '../../ui/class-names.ts'
import { Loaded, Skeleton } from '../../ui/loaded.tsx'
import { StateMark } from '../../ui/state-mark.tsx'
import { Time } from '../../ui/time.tsx'
import { alertWords } from '../settings/alert-terms.ts'
import { DepositPanel } from './deposit-panel.tsx'
import { History } from './history.tsx'
import { LiabilityLine } from './liability-line.tsx'
import { RefundPanel, X402Panel } from './wallet-account-panels.tsx'
import { WithdrawPanel } from './withdraw-panel.tsx'

const addressPollMs = 5_000

export function FundsPage() {
  const session = useQuery(sessionQuery)
  const balance = useQuery(balanceQuery)
  // The first look at the deposits assigns the address.
  const deposits = useQuery({
    ...depositsQuery,
    refetchInterval: ({ state }) =>
      state.data?.deposit_address === null && session.data?.account?.x402_wallet == null ? addressPollMs : false,
  })
  const known = session.data?.account
  const account = known && { ...known, deposit_address: deposits.data?.deposit_address ?? known.deposit_address }
  return (
    <Page title="Funds">
      <Loaded query={balance} skeleton={<Skeleton lines={3} height={32} />}>
        {(data) => (
          <>
            <BalanceCard balance={data} account={account ?? null} />
            {session.data && account && (
              <div className="grid grid-cols-1 items-start gap-6 lg:grid-cols-[3fr_2fr]">
                {account.x402_wallet === null ? (
                  <>
                    <DepositPanel session={session.data} account={account} />
                    <WithdrawPanel session={session.data} account={account} balance={data} />
                  </>
                ) : (
                  <>
                    <X402Panel session={session.data} wallet={account.x402_wallet} />
                    <RefundPanel session={session.data} wallet={account.x402_wallet} balance={data} />
                  </>
                )}
              </div>
            )}
          </>
        )}
      </Loaded>
      <History chain={session.data?.chain ?? null} />
    </Page>
  )
}

function BalanceCard({ balance, account }: { balance: BalanceShape; account: Account | null }) {
  const isWalletAccount = account?.x402_wallet != null
  const rest = [
    ...(isWalletAccount ? [] : [['Pending deposits', balance.pending_deposits_atomic] as const]),
    [isWalletAccount ? 'Pending refunds' : 'Pending withdrawals', balance.pending_withdrawals_atomic],
    [isWalletAccount ? 'Total paid' : 'Total deposited', balance.deposited_atomic],
    [isWalletAccount ? 'Total refunded' : 'Total withdrawn', balance.withdrawn_atomic],
    ['Total charged', balance.charged_atomic],
  ] as const
  const available = isWalletAccount ? 'Credit' : 'Available'
  return (
    <section className="rounded-md border border-rule bg-surface" aria-label="Balance">
      <div className="flex flex-wrap gap-x-16 gap-y-4 p-6">
        <div>
          <p className="text-sm text-muted">{available}</p>
          <Balance
            amount={atomic(balance.available_atomic)}
            label={available}
            className="text-2xl font-medium tracking-tight"
          />
        </div>
        <div>
          <p className="text-sm text-muted">Held</p>
          <Balance
            amount={atomic(balance.held_atomic)}
            label="Held"
            className={classNames(
              'text-2xl tracking-tight',
              atomic(balance.held_atomic) > 0n ? 'text-held' : 'text-muted',
            )}
          />
          <p className="text-sm text-muted">
            {balance.open_requests === 0 ? (
              'No open requests'
            ) : (
              <>
                {balance.open_requests} open {balance.open_requests === 1 ? 'request' : 'requests'}
                {balance.oldest_hold_at !== null && (
                  <>
                    , oldest <Time at={balance.oldest_hold_at} show="age" />
                  </>
                )}
              </>
            )}
          </p>
        </div>
      </div>
      <dl className="grid grid-cols-2 gap-x-8 gap-y-2 border-t border-rule px-6 py-4 md:grid-cols-5">
        {rest.map(([label, amount]) => (
          <div key={label}>
            <dt className="text-sm text-muted">{label}</dt>
            <dd>
              <Sum amount={atomic(amount)} />
            </dd>
          </div>
        ))}
      </dl>
      {account !== null && (
        <p className="border-t border-rule px-6 py-3 text-sm">
          {isWalletAccount &&
            'Requests that pay over x402 need no credit, so warnings are sent only while the account has API keys. '}
          {alertWords(account.alerts)}{' '}
          <Link to="/settings" hash="alerts" className="link">
            Change<span className="sr-only"> low-balance warnings</span>
          </Link>
        </p>
      )}
      <SolvencyLine />
      {account !== null && <LiabilityLine accountId={account.id} />}
    </section>
  )
}

function SolvencyLine() {
  const { data } = useQuery(solvencyQuery)
  if (data === undefined) return null
  // A service that has just started has compared nothing yet.
  const mark = data.ok === null || data.checked_at === null ? 'pending' : data.ok ? 'settled' : 'failed'
  const words = {
    pending: 'Comparing ledger and chain',
    settled: 'Ledger matches chain',
    failed: 'Ledger and chain differ',
  }
  return (
    <p className="flex flex-wrap items-center gap-x-3 border-t border-rule px-6 py-3 text-sm" data-testid="solvency">
      <StateMark mark={mark} word={words[mark]} />
      {data.block !== null && <span className="num text-muted">block {data.block}</span>}
      {data.checked_at !== null && (
        <span className="text-muted">
          <Time at={data.checked_at} show="age" />
        </span>
      )}
    </p>
  )
}
