import { useQuery } from '@tanstack/react-query'
import { useParams } from '@tanstack/react-router'
import { useState } from 'react'
import { isPrepaid } from '../../../../src/receipts/payment.ts'
import type { Receipt } from '../../../../src/receipts/receipt.ts'
import type { Check, ReceiptCheck } from '../../../../src/receipts/verify-receipt.ts'
import { ApiError } from '../../api/call.ts'
import { receiptQuery, sessionQuery } from '../../api/queries.ts'
import { formatCharge, formatCount } from '../../money/format.ts'
import { usePageTitle } from '../../shell/page.tsx'
import { Button } from '../../ui/button.tsx'
import { CopyableId, shorten } from '../../ui/copy.tsx'
import { download } from '../../ui/csv.ts'
import { utc } from '../../ui/format-time.ts'
import { Loaded, Skeleton } from '../../ui/loaded.tsx'
import { type Fact, Facts, Notice } from '../../ui/panel.tsx'
import { StateMark } from '../../ui/state-mark.tsx'
import { Transaction } from '../requests/request-drawer.tsx'
import { Checks, Unreadable, type Verdict } from './checks.tsx'
import { type IssuerCheck, isFromElsewhere, useIssuerCheck } from './issuer.ts'
import { type Chosen, VerifiedBundle, VerifyFile } from './verify-file.tsx'

/** The cost of one request, verified in the reader's browser. Public: it contains no prompt. */
export function ReceiptPage() {
  const { id } = useParams({ strict: false }) as { id: string }
  usePageTitle(`Receipt ${shorten(id, 8, 4)}`)
  const [chosen, setChosen] = useState<Chosen>()
  return (
    <div className="mx-auto flex w-full max-w-2xl flex-col gap-6">
      <div>
        <h1 className="text-2xl tracking-tight">Receipt</h1>
        <p className="mt-1 text-muted">
          What one request cost, verified in your browser. It contains no prompt and no answer.
        </p>
      </div>
      {chosen === undefined ? (
        <ReceiptOf id={id} />
      ) : 'bundle' in chosen ? (
        <VerifiedBundle file={chosen.bundle} />
      ) : 'problem' in chosen ? (
        <Unreadable problem={chosen.problem} />
      ) : (
        <Verified document={chosen.document} />
      )}
      <VerifyFile onChosen={setChosen} />
    </div>
  )
}

function ReceiptOf({ id }: { id: string }) {
  const receipt = useQuery(receiptQuery(id))
  if (receipt.error instanceof ApiError && receipt.error.status === 404) {
    return (
      <Notice tone="error" role="alert">
        <p className="font-medium">No receipt has this id.</p>
        <p>Check the link. The receipt of a new request appears a few seconds after the request ends.</p>
      </Notice>
    )
  }
  return (
    <Loaded query={receipt} skeleton={<Skeleton lines={10} />}>
      {(data) => <Verified document={data} />}
    </Loaded>
  )
}

function Verified({ document }: { document: unknown }) {
  const verified = useQuery({
    queryKey: ['receipts', 'checks', document],
    queryFn: async () => {
      const [{ verifyReceipt }, { readReceipt }, { viemCrypto }] = await Promise.all([
        import('../../../../src/receipts/verify-receipt.ts'),
        import('../../../../src/receipts/receipt.ts'),
        import('../../../../src/receipts/viem-crypto.ts'),
      ])
      return { checks: await verifyReceipt(document, viemCrypto), receipt: readReceipt(document) }
    },
    staleTime: Number.POSITIVE_INFINITY,
    retry: false,
  })
  const issuer = verified.data?.receipt.payment?.issuer
  const issuerCheck = useIssuerCheck(issuer)
  if (verified.error !== null) return <Unreadable problem={verified.error.message} />
  if (verified.data === undefined || (issuer !== undefined && issuerCheck === undefined)) {
    return <p role="status">Checking…</p>
  }
  const { receipt } = verified.data
  const checks: readonly ShownCheck[] = [...verified.data.checks, ...(issuerCheck === undefined ? [] : [issuerCheck])]
  const verdict = verdictOf(checks, receipt)
  return (
    <>
      <Checks
        checks={checks}
        verdict={verdict}
        word={isFromElsewhere(checks) ? 'This service did not issue this receipt' : verdictWords[verdict]}
        nameOf={(check) => nameOf(check, receipt)}
      />
      <ReceiptFacts receipt={receipt} />
      <div className="flex flex-wrap gap-2">
        <Button
          icon="download"
          onClick={() => download('receipt.json', 'application/json', `${JSON.stringify(document, null, 2)}\n`)}
        >
          Download JSON
        </Button>
      </div>
      <p className="text-muted">
        Verify it yourself: <code className="num">npx penny verify receipt.json</code>
      </p>
    </>
  )
}

type ShownCheck = ReceiptCheck | IssuerCheck

/** An unsigned receipt proves nothing, even if its fields are consistent; nor does one whose issuer is unknown. */
function verdictOf(checks: readonly ShownCheck[], { payment }: Receipt): Verdict {
  if (checks.some(({ ok }) => !ok)) return 'wrong'
  if (payment === undefined) return 'pending'
  return checks.some(({ name, pending }) => name === 'issuer' && pending) ? 'unknown-issuer' : 'proved'
}

const verdictWords: Readonly<Record<Verdict, string>> = {
  proved: 'This receipt is genuine',
  'unknown-issuer': 'This receipt is consistent; its issuer was not checked',
  pending: 'This receipt is not signed yet',
  wrong: 'This receipt is not genuine',
}

const names: Readonly<Record<ShownCheck['name'], readonly [good: string, bad: string, pending: string]>> = {
  issuer: ['Issued by this service', 'Not issued by this service', 'The issuer was not checked'],
  hash: ['The fields match their hash', 'The fields were changed', ''],
  signature: ['The issuer’s signature is valid', 'The issuer’s signature is not valid', 'Not signed yet'],
  amounts: ['The amounts are consistent', 'The amounts are not consistent', ''],
  payment: ['Covered by its payment', 'Not covered by the payment it names', 'Not paid yet'],
  inclusion: ['Included in its batch', 'Not included in the batch it names', 'Not settled on chain yet'],
}

function nameOf({ name, ok, pending }: Check, { payment }: Receipt): string {
  if (name === 'inclusion' && ok && !pending && payment?.batch === undefined) return 'No transfer needed'
  const [good, bad, waiting] = names[name as ShownCheck['name']]
  if (pending) return waiting
  return ok ? good : bad
}

function ReceiptFacts({ receipt: { entry, payment } }: { receipt: Receipt }) {
  return (
    <section className="rounded-md border border-rule bg-surface p-4" aria-label="Receipt">
      <Facts
        rows={[
          entry.amount < 0n
            ? ['Refunded', <Amount key="amount" value={-entry.amount} strong />]
            : ['Charged', <Amount key="amount" value={entry.amount} strong />],
          ['Date', utc(new Date(Number(entry.endedAt)))],
          ['Payer', <CopyableId key="payer" id={entry.payer} label="payer" short />],
          ['Payee', payment && <CopyableId id={payment.issuer} label="issuer" short />],
          ['For', kindWords[entry.kind]],
          ['Request', entry.request !== '' && <CopyableId id={entry.request} label="request id" short />],
          ...(entry.kind === 'request' ? requestRows(entry) : []),
          ['Number', `Receipt no. ${formatCount(entry.number)} for this payer`],
          ...paymentRows(payment),
        ]}
      />
    </section>
  )
}

function requestRows(entry: Receipt['entry']): readonly Fact[] {
  return [
    ['Model', entry.model],
    ['Tokens', `${formatCount(entry.promptTokens)} in, ${formatCount(entry.completionTokens)} out`],
    ['Searches', formatCount(entry.searchCalls)],
    ['Quoted', <Amount key="quote" value={entry.quote} />],
    ['From credit', <Amount key="credit" value={entry.fromCredit} />],
    ['Status', entry.status],
    ['Received', utc(new Date(Number(entry.createdAt)))],
  ]
}

const kindWords: Readonly<Record<Receipt['entry']['kind'], string>> = {
  request: 'Request',
  adjustment: 'Adjustment',
  refund: 'Refund',
  recovery: 'Charges missing from a restored ledger',
}

function Amount({ value, strong = false }: { value: bigint; strong?: boolean }) {
  return <span className={strong ? 'num font-medium' : 'num'}>{formatCharge(value)}</span>
}

function paymentRows(payment: Receipt['payment']): readonly Fact[] {
  if (payment === undefined) return [['Payment', <StateMark key="payment" mark="pending" word="Not paid yet" />]]
  const { number, first, last, value, batch } = payment
  const together =
    first === last
      ? 'for this receipt only'
      : `paid together with ${formatCount(last - first)} ${last - first === 1n ? 'other' : 'others'}: receipts ${formatCount(first)} to ${formatCount(last)}`
  return [
    ['Payment', `No. ${formatCount(number)}, ${together}`],
    ['Payment value', <Amount key="value" value={value} />],
    [
      'Settled',
      batch !== undefined ? (
        <Settled key="tx" id={batch.id} hash={batch.txHash} />
      ) : isPrepaid(payment) ? (
        <StateMark key="tx" mark="settled" word="Paid in advance over x402" />
      ) : value === 0n ? (
        <StateMark key="tx" mark="settled" word="No transfer needed: it adds up to zero" />
      ) : (
        <StateMark key="tx" mark="pending" word="Not settled on chain yet" />
      ),
    ],
  ]
}

function Settled({ id, hash }: { id: bigint; hash: string }) {
  const { data: session } = useQuery(sessionQuery)
  return (
    <span className="flex flex-wrap items-center gap-x-3">
      <StateMark mark="settled" word={`Batch ${id}`} />
      <Transaction hash={hash} explorer={session?.chain?.explorer_url ?? null} />
    </span>
  )
}
