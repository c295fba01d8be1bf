import { useQuery } from '@tanstack/react-query'
import { type ChangeEvent, useState } from 'react'
import { lineLengthMax } from '../../../../src/receipts/read-lines.ts'
import type { BundleCheck, BundleReport } from '../../../../src/receipts/verify-bundle.ts'
import { formatAmount, formatCount } from '../../money/format.ts'
import { buttonClass } from '../../ui/button.tsx'
import { CopyableId } from '../../ui/copy.tsx'
import { Icon } from '../../ui/icon.tsx'
import { Facts } from '../../ui/panel.tsx'
import { Checks, Unreadable } from './checks.tsx'
import { type IssuerCheck, isFromElsewhere, useIssuerCheck } from './issuer.ts'

/** The chosen file: the JSON of one receipt, the bundle of an account, which is streamed while it is verified, or neither. */
export type Chosen = { readonly document: unknown } | { readonly bundle: File } | { readonly problem: string }

const receiptBytesMax = 1_048_576

/** Takes a file from the reader's machine. It is verified like any other and sent nowhere. */
export function VerifyFile({ onChosen }: { onChosen: (chosen: Chosen) => void }) {
  const choose = async ({ target }: ChangeEvent<HTMLInputElement>) => {
    const file = target.files?.[0]
    if (file === undefined) return
    // Otherwise the browser would not report the same path chosen again, with a file that has changed.
    target.value = ''
    onChosen(
      await read(file).catch((error: Error) => ({
        problem: error instanceof SyntaxError ? `${file.name} is not valid JSON.` : error.message,
      })),
    )
  }
  return (
    <div className="border-t border-rule pt-4">
      <label className={`${buttonClass({})} relative has-focus-visible:outline-2 has-focus-visible:outline-link`}>
        <Icon name="docs" /> Verify a receipt file
        <input
          type="file"
          accept="application/json,.json,.jsonl"
          className="absolute inset-0 opacity-0"
          onChange={choose}
        />
      </label>
    </div>
  )
}

async function read(file: File): Promise<Chosen> {
  const [firstLine] = (await file.slice(0, lineLengthMax).text()).split('\n')
  if (isBundleHeader(firstLine!)) return { bundle: file }
  if (file.size > receiptBytesMax) throw new Error(`${file.name} is too large to be a receipt.`)
  const document: unknown = JSON.parse(await file.text())
  // Refused before any part is shown.
  const { readReceipt } = await import('../../../../src/receipts/receipt.ts')
  readReceipt(document)
  return { document }
}

function isBundleHeader(line: string): boolean {
  try {
    return (JSON.parse(line) as { object?: unknown } | null)?.object === 'receipts'
  } catch {
    return false
  }
}

const names: Readonly<Record<BundleCheck['name'] | IssuerCheck['name'], string>> = {
  entries: 'Entries',
  payments: 'Payments',
  amounts: 'Amounts',
  signatures: 'Signatures',
  inclusion: 'Batches',
  chain: 'On chain',
  unpaid: 'Unpaid entries',
  issuer: 'Issuer',
  end: 'End of the file',
}

const bundleWords = {
  proved: 'This account’s receipts are genuine',
  'unknown-issuer': 'These receipts are consistent; their issuer was not checked',
  wrong: 'These receipts are not genuine or not complete',
} as const

/** A whole account's history, verified line by line in the browser. */
export function VerifiedBundle({ file }: { file: File }) {
  const [count, setCount] = useState(0n)
  const report = useQuery({
    queryKey: ['receipts', 'bundle', file.name, file.size, file.lastModified],
    queryFn: async () => {
      const [{ verifyBundle }, { viemCrypto }] = await Promise.all([
        import('../../../../src/receipts/verify-bundle.ts'),
        import('../../../../src/receipts/viem-crypto.ts'),
      ])
      return verifyBundle(chunksOf(file), { crypto: viemCrypto, onProgress: ({ entries }) => setCount(entries) })
    },
    // The file may have changed under the same name.
    gcTime: 0,
    retry: false,
  })
  const issuerCheck = useIssuerCheck(report.data?.header.issuer)
  if (report.error !== null) return <Unreadable problem={report.error.message} />
  if (report.data === undefined || issuerCheck === undefined) {
    return <p role="status">Checking… {formatCount(count)} entries</p>
  }
  const checks = [...report.data.checks, issuerCheck]
  const verdict = checks.some(({ ok }) => !ok) ? 'wrong' : issuerCheck.pending ? 'unknown-issuer' : 'proved'
  return (
    <>
      <Checks
        checks={checks}
        verdict={verdict}
        word={isFromElsewhere(checks) ? 'This service did not issue these receipts' : bundleWords[verdict]}
        nameOf={({ name }) => names[name as keyof typeof names]}
      />
      <BundleFacts report={report.data} />
    </>
  )
}

function BundleFacts({ report: { header, totals } }: { report: BundleReport }) {
  return (
    <section className="rounded-md border border-rule bg-surface p-4" aria-label="Bundle">
      <Facts
        rows={[
          ['Payer', <CopyableId key="payer" id={header.payer} label="payer" short />],
          ['Issuer', <CopyableId key="issuer" id={header.issuer} label="issuer" short />],
          ['Entries', `${formatCount(totals.entries)}, ${formatCount(totals.unpaid)} of them not paid yet`],
          ['Payments', `${formatCount(totals.payments)}, ${formatCount(totals.batched)} of them on chain`],
          [
            'Paid',
            <span key="paid" className="num font-medium">
              {formatAmount(totals.paid)}
            </span>,
          ],
        ]}
      />
    </section>
  )
}

/** Not every browser can iterate over a stream. */
async function* chunksOf(file: File): AsyncGenerator<Uint8Array> {
  const reader = file.stream().getReader()
  for (let part = await reader.read(); !part.done; part = await reader.read()) yield part.value
}
