import { useQuery } from '@tanstack/react-query'
import { useParams } from '@tanstack/react-router'
import { type ChangeEvent, useState } from 'react'
import type { ReceiptDocument } from '../../../../src/settlement/receipt.ts'
import type { ReceiptCheck } from '../../../../src/settlement/verify-receipt.ts'
import { ApiError } from '../../api/call.ts'
import { receiptQuery, sessionQuery } from '../../api/queries.ts'
import { atomic, formatCharge, formatCount } from '../../money/format.ts'
import { usePageTitle } from '../../shell/page.tsx'
import { Button, buttonClass } from '../../ui/button.tsx'
import { CopyableId, shorten } from '../../ui/copy.tsx'
import { download } from '../../ui/csv.ts'
import { Icon } from '../../ui/icon.tsx'
import { Loaded, Skeleton } from '../../ui/loaded.tsx'
import { Facts, Notice } from '../../ui/panel.tsx'
import { StateMark } from '../../ui/state-mark.tsx'
import { Time } from '../../ui/time.tsx'
import { Transaction } from '../requests/request-drawer.tsx'

/** What was paid for one request, proved in the reader's own browser. Anybody may look: there is no prompt in it. */
export function ReceiptPage() {
  const { id } = useParams({ strict: false }) as { id: string }
  usePageTitle(`Receipt ${shorten(id, 8, 4)}`)
  const receipt = useQuery(receiptQuery(id))
  const [chosen, setChosen] = useState<ReceiptDocument>()
  return (
    <div className="mx-auto flex w-full max-w-2xl flex-col gap-6">
      <div>
        <h1 className="text-2xl tracking-tight">Receipt</h1>
        <p className="mt-1 text-muted">
          What one request cost, verified in your browser. It contains no prompt and no answer.
        </p>
      </div>
      {chosen === undefined && isMissing(receipt.error) ? (
        <Notice tone="error" role="alert">
          <p className="font-medium">No receipt has this id.</p>
          <p>Check the link. The receipt of a new request appears a few seconds after the request ends.</p>
        </Notice>
      ) : chosen === undefined ? (
        <Loaded query={receipt} skeleton={<Skeleton lines={10} />}>
          {(data) => <Verified document={data as unknown as ReceiptDocument} />}
        </Loaded>
      ) : (
        <Verified document={chosen} />
      )}
      <VerifyFile onChosen={setChosen} />
    </div>
  )
}

function isMissing(error: Error | null): boolean {
  return error instanceof ApiError && error.status === 404
}

function Verified({ document }: { document: ReceiptDocument }) {
  const checks = useQuery({
    queryKey: ['receipts', 'checks', document],
    queryFn: async () => {
      const { verifyReceipt } = await import('../../../../src/settlement/verify-receipt.ts')
      return verifyReceipt(document)
    },
    staleTime: Number.POSITIVE_INFINITY,
    retry: false,
  })
  return (
    <>
      <Checks checks={checks.data} error={checks.error} document={document} />
      {checks.error === null && <ReceiptFacts document={document} />}
      <div className="flex flex-wrap gap-2">
        <Button
          icon="download"
          onClick={() => download('receipt.json', 'application/json', `${JSON.stringify(document, null, 2)}\n`)}
        >
          Download JSON
        </Button>
      </div>
      <p className="text-muted">
        Verify it yourself: <code className="num">penny verify receipt.json</code>
      </p>
    </>
  )
}

const names: Readonly<Record<ReceiptCheck['name'], readonly [good: string, bad: string]>> = {
  hash: ['The signed fields are unchanged', 'The fields were changed after signing'],
  signature: ['The issuer’s signature is valid', 'The issuer’s signature is not valid'],
  amounts: ['The amounts are consistent', 'The amounts are not consistent'],
  inclusion: ['Included in its batch', 'Not included in the batch it names'],
}

/** Where the payment stands. What credit paid for has no payment of its own. */
function settlementOf({ receipt, batch }: ReceiptDocument): readonly ['settled' | 'pending' | 'charged', string] {
  if (batch !== undefined) return ['settled', names.inclusion[0]]
  if (receipt.authorized !== '0') return ['pending', 'Not settled on chain yet']
  return ['charged', `${receipt.charged === '0' ? 'Nothing was charged' : 'Paid from credit'}: nothing to settle`]
}

function Checks({
  checks,
  error,
  document,
}: {
  checks: readonly ReceiptCheck[] | undefined
  error: Error | null
  document: ReceiptDocument
}) {
  if (error !== null) {
    return (
      <Notice tone="error" role="alert">
        <StateMark mark="failed" word={error.message} />
      </Notice>
    )
  }
  if (checks === undefined) return <p role="status">Checking…</p>
  const good = checks.every(({ ok }) => ok)
  return (
    <section
      aria-label="Checks"
      data-testid="checks"
      data-ok={good}
      className="rounded-md border border-rule bg-surface"
    >
      <p className="border-b border-rule px-4 py-3 text-lg" role="status">
        <StateMark
          mark={good ? 'settled' : 'failed'}
          word={good ? 'This receipt is genuine' : 'This receipt is not genuine'}
        />
      </p>
      <ul>
        {checks.map(({ name, ok, detail }) => (
          <li
            key={name}
            data-testid={`check-${name}`}
            data-ok={ok}
            className="border-b border-rule px-4 py-2 last:border-b-0"
          >
            <StateMark
              mark={!ok ? 'failed' : name === 'inclusion' ? settlementOf(document)[0] : 'settled'}
              word={ok && name === 'inclusion' ? settlementOf(document)[1] : names[name][ok ? 0 : 1]}
            />
            <p className="num text-sm break-all text-muted">{detail}</p>
          </li>
        ))}
      </ul>
    </section>
  )
}

function ReceiptFacts({ document }: { document: ReceiptDocument }) {
  const { receipt, issuer, batch } = document
  const settlement = settlementOf(document)
  const { data: session } = useQuery(sessionQuery)
  const instant = (milliseconds: string) => new Date(Number(milliseconds)).toISOString()
  return (
    <section className="rounded-md border border-rule bg-surface p-4" aria-label="Receipt">
      <Facts
        rows={[
          ['Request', <CopyableId key="request" id={receipt.request} label="request id" short />],
          [
            'Charged',
            <span key="charged" className="num font-medium">
              {formatCharge(atomic(receipt.charged))}
            </span>,
          ],
          [
            'Quoted',
            <span key="quote" className="num">
              {formatCharge(atomic(receipt.quote))}
            </span>,
          ],
          [
            'Authorized',
            <span key="authorized" className="num">
              {formatCharge(atomic(receipt.authorized))}
            </span>,
          ],
          ['Status', receipt.status],
          ['Model', receipt.model],
          [
            'Tokens',
            `${formatCount(BigInt(receipt.promptTokens))} in, ${formatCount(BigInt(receipt.completionTokens))} out`,
          ],
          ['Searches', receipt.searchCalls],
          ['From', <Time key="from" at={instant(receipt.createdAt)} />],
          ['To', <Time key="to" at={instant(receipt.endedAt)} />],
          ['Payer', <CopyableId key="payer" id={receipt.payer} label="payer" short />],
          ['Issuer', <CopyableId key="issuer" id={issuer} label="issuer" short />],
          ['Number', `Receipt no. ${formatCount(BigInt(receipt.number))} for this payer`],
          [
            'Settled',
            batch === undefined ? (
              <StateMark key="tx" mark={settlement[0]} word={settlement[1]} />
            ) : (
              <span key="tx" className="flex flex-wrap items-center gap-x-3">
                <StateMark mark="settled" word={`Batch ${batch.id}`} />
                <Transaction hash={batch.tx_hash} explorer={session?.chain?.explorer_url ?? null} />
              </span>
            ),
          ],
        ]}
      />
    </section>
  )
}

/** A receipt that somebody sent: checked the same way, without sending it anywhere. */
function VerifyFile({ onChosen }: { onChosen: (document: ReceiptDocument) => void }) {
  const [problem, setProblem] = useState<string>()
  const choose = async ({ target }: ChangeEvent<HTMLInputElement>) => {
    const file = target.files?.[0]
    if (file === undefined) return
    try {
      onChosen(JSON.parse(await file.text()) as ReceiptDocument)
      setProblem(undefined)
    } catch {
      setProblem(`${file.name} is not valid JSON.`)
    }
  }
  return (
    <div className="border-t border-rule pt-4">
      <label className={`${buttonClass({})} relative has-focus-visible:outline-2 has-focus-visible:outline-link`}>
        <Icon name="docs" /> Verify a receipt file
        <input type="file" accept="application/json,.json" className="absolute inset-0 opacity-0" onChange={choose} />
      </label>
      {problem !== undefined && (
        <p role="alert" className="mt-2 text-error">
          {problem}
        </p>
      )}
    </div>
  )
}
