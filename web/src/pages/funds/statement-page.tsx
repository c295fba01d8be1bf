import { useQuery } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { addressOf } from '../../api/call.ts'
import { sessionQuery, statementQuery } from '../../api/queries.ts'
import { useX402Wallet } from '../../api/session.ts'
import type { Statement } from '../../api/shapes.ts'
import { atomic, formatCharge, formatCount } from '../../money/format.ts'
import { BackLink, Page } from '../../shell/page.tsx'
import { AnchorButton, Button } from '../../ui/button.tsx'
import { Select } from '../../ui/field.tsx'
import { utc } from '../../ui/format-time.ts'
import { Loaded, Skeleton } from '../../ui/loaded.tsx'
import { StateMark } from '../../ui/state-mark.tsx'
import { monthName, monthsFrom } from './months.ts'

/** A month of the account's money on one page, for bookkeeping and printing. */
export function StatementPage() {
  const { month } = useSearch({ strict: false }) as { month?: string }
  const navigate = useNavigate()
  const statement = useQuery(statementQuery(month))
  const choose = (next: string) => void navigate({ to: '.', search: { month: next } as never, replace: true })
  return (
    <Page
      title="Statement"
      lead={<BackLink to="/funds" label="Funds" />}
      actions={
        statement.data !== undefined && (
          <>
            <Select
              aria-label="Month"
              className="w-44!"
              value={statement.data.month}
              options={monthsFrom(statement.data.first_month, new Date()).map((one) => [one, monthName(one)])}
              onChange={choose}
            />
            <AnchorButton
              icon="download"
              href={addressOf('GET /api/statement', { query: { month: statement.data.month, format: 'csv' } })}
              download={`penny-statement-${statement.data.month}.csv`}
              data-testid="statement-csv"
            >
              CSV
            </AnchorButton>
            <Button onClick={() => window.print()}>Print</Button>
          </>
        )
      }
    >
      <Loaded query={statement} skeleton={<Skeleton lines={8} height={24} />}>
        {(data) => <Sheet statement={data} />}
      </Loaded>
    </Page>
  )
}

function Sheet({ statement }: { statement: Statement }) {
  const { data: session } = useQuery(sessionQuery)
  const { month, is_over, from, to, adds_up } = statement
  const end = is_over ? 'closing balance' : 'current balance'
  return (
    <section
      aria-label={`Statement of ${monthName(month)}`}
      data-testid="statement"
      data-month={month}
      className="max-w-4xl rounded-md border border-rule bg-surface print:max-w-none print:border-0"
    >
      <header className="flex flex-wrap justify-between gap-x-8 gap-y-1 border-b border-rule px-6 py-4">
        <div>
          <h2 className="text-xl">{monthName(month)}</h2>
          <p className="text-sm text-muted">
            {utc(new Date(from))} to {is_over ? utc(new Date(to)) : 'now (the month has not ended)'}
          </p>
        </div>
        {session?.account && (
          <p className="text-sm wrap-anywhere text-muted">
            {session.account.name}
            <span className="num block">{session.account.id}</span>
          </p>
        )}
      </header>
      <Lines statement={statement} />
      {statement.keys.length > 0 && <KeyLines statement={statement} />}
      <footer className="flex flex-col gap-1 border-t border-rule px-6 py-4 text-sm text-muted">
        <StateMark
          mark={adds_up ? 'settled' : 'failed'}
          word={
            adds_up
              ? `The opening balance and all movements add up to the ${end}.`
              : `The opening balance and all movements do not add up to the ${end}. Please contact the operator.`
          }
        />
        <p>
          Amounts are in USDC. Balances include money held by open requests. A request counts in the month it started
          (UTC).
        </p>
      </footer>
    </section>
  )
}

function Lines({ statement: { opening_atomic, closing_atomic, lines, is_over } }: { statement: Statement }) {
  const kinds = useX402Wallet() === undefined ? kindWords : { ...kindWords, ...walletKindWords }
  return (
    <table className="w-full border-collapse text-left">
      <caption className="sr-only">Opening balance, movements and closing balance</caption>
      <thead className="sr-only">
        <tr>
          <th scope="col">Item</th>
          <th scope="col">Count</th>
          <th scope="col">Amount</th>
        </tr>
      </thead>
      <tbody>
        <BalanceRow name="Opening balance" amount={opening_atomic} testId="opening" />
        {lines.map((line) => (
          <tr
            key={`${line.kind} ${line.model}`}
            data-testid="statement-line"
            data-amount={line.amount_atomic}
            className="border-b border-rule"
          >
            <td className="py-2 pl-6">
              {kinds[line.kind].name}
              {line.model !== null && <span className="text-muted"> {line.model}</span>}
            </td>
            <td className="py-2 pl-4 text-right text-sm text-muted max-sm:sr-only">
              {formatCount(line.count)} {kinds[line.kind].counted[line.count === 1 ? 0 : 1]}
            </td>
            <td className="num py-2 pr-6 pl-4 text-right whitespace-nowrap">{signed(atomic(line.amount_atomic))}</td>
          </tr>
        ))}
        {lines.length === 0 && (
          <tr className="border-b border-rule">
            <td colSpan={3} className="px-6 py-2 text-muted">
              No movements.
            </td>
          </tr>
        )}
        <BalanceRow name={is_over ? 'Closing balance' : 'Current balance'} amount={closing_atomic} testId="closing" />
      </tbody>
    </table>
  )
}

/** Charges by key. Its sums equal those of inference and web search above, to the atomic unit. */
function KeyLines({ statement: { month, keys } }: { statement: Statement }) {
  const total = keys.reduce((sum, line) => sum + atomic(line.amount_atomic), 0n)
  return (
    <div className="border-t border-rule">
      <div className="flex items-center justify-between gap-4 px-6 pt-4 pb-2">
        <h3 className="font-medium">Charges by key</h3>
        <a
          href={addressOf('GET /api/statement', { query: { month, format: 'csv', by: 'key' } })}
          download={`penny-statement-${month}-by-key.csv`}
          className="link text-sm print:hidden"
        >
          CSV by key
        </a>
      </div>
      <table className="w-full border-collapse text-left">
        <caption className="sr-only">Charges by key, largest first</caption>
        <thead className="sr-only">
          <tr>
            <th scope="col">Key</th>
            <th scope="col">Count</th>
            <th scope="col">Amount</th>
          </tr>
        </thead>
        <tbody>
          {keys.map(({ key, requests, searches, amount_atomic }) => (
            <tr
              key={key.id}
              data-testid="statement-key"
              data-amount={amount_atomic}
              className="border-b border-rule last:border-b-0"
            >
              <td className="py-2 pl-6 wrap-anywhere">
                {key.name} {key.hint !== key.name && <span className="num text-sm text-muted">{key.hint}</span>}
              </td>
              <td className="py-2 pl-4 text-right text-sm text-muted max-sm:sr-only">
                {formatCount(requests)} {requests === 1 ? 'request' : 'requests'}
                {searches > 0 && `, ${formatCount(searches)} ${searches === 1 ? 'search' : 'searches'}`}
              </td>
              <td className="num py-2 pr-6 pl-4 text-right whitespace-nowrap">{signed(atomic(amount_atomic))}</td>
            </tr>
          ))}
          <tr className="border-t border-rule font-medium">
            <th scope="row" colSpan={2} className="py-2.5 pl-6 text-left font-medium">
              All keys
            </th>
            <td className="num py-2.5 pr-6 text-right whitespace-nowrap" data-testid="statement-keys-total">
              {signed(total)}
            </td>
          </tr>
        </tbody>
      </table>
    </div>
  )
}

function BalanceRow({ name, amount, testId }: { name: string; amount: string; testId: string }) {
  return (
    <tr className="border-b border-rule font-medium last:border-b-0" data-testid={testId} data-amount={amount}>
      <th scope="row" colSpan={2} className="py-2.5 pl-6 text-left font-medium">
        {name}
      </th>
      <td className="num py-2.5 pr-6 text-right whitespace-nowrap">{formatCharge(atomic(amount))}</td>
    </tr>
  )
}

type KindWords = { readonly name: string; readonly counted: readonly [string, string] }

const kindWords: Readonly<Record<Statement['lines'][number]['kind'], KindWords>> = {
  deposit: { name: 'Deposits', counted: ['deposit', 'deposits'] },
  inference: { name: 'Inference', counted: ['request', 'requests'] },
  search: { name: 'Web search', counted: ['search', 'searches'] },
  adjustment: { name: 'Refunds and adjustments', counted: ['adjustment', 'adjustments'] },
  withdrawal: { name: 'Withdrawals', counted: ['withdrawal', 'withdrawals'] },
  withdrawal_returned: { name: 'Failed withdrawals, returned', counted: ['withdrawal', 'withdrawals'] },
  withdrawal_fee_returned: { name: 'Unused withdrawal fees, returned', counted: ['withdrawal', 'withdrawals'] },
}

/** For an account that pays over x402. */
const walletKindWords = {
  deposit: { name: 'Payments over x402', counted: ['payment', 'payments'] },
  withdrawal: { name: 'Refunds to the wallet', counted: ['refund', 'refunds'] },
  withdrawal_returned: { name: 'Failed refunds, returned', counted: ['refund', 'refunds'] },
} as const satisfies Partial<typeof kindWords>

function signed(amount: bigint): string {
  return amount > 0n ? `+${formatCharge(amount)}` : formatCharge(amount)
}
