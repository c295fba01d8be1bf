import { useQuery } from '@tanstack/react-query'
import type { LiabilityProof } from '../../../../src/receipts/liability-proof.ts'
import { liabilityProofQuery, solvencyQuery } from '../../api/queries.ts'
import type { Answer } from '../../api/shapes.ts'
import { formatAmount, formatCount } from '../../money/format.ts'
import { StateMark } from '../../ui/state-mark.tsx'
import { Time } from '../../ui/time.tsx'

type Solvency = Answer<'GET /api/solvency'>
type Snapshot = NonNullable<Solvency['liabilities']>

/** Whether this account's balance is part of the sum that the service says it owes, verified here and not by the service. */
export function LiabilityLine({ accountId }: { accountId: string }) {
  const { data: solvency } = useQuery(solvencyQuery)
  const snapshot = solvency?.liabilities
  return (
    snapshot && <ProofOf key={snapshot.number} accountId={accountId} snapshot={snapshot} issuer={solvency.issuer} />
  )
}

function ProofOf(props: { accountId: string; snapshot: Snapshot; issuer: string | undefined }) {
  const { accountId, snapshot } = props
  const { data: document } = useQuery(liabilityProofQuery(accountId, snapshot.number))
  const { data: verdict } = useQuery({
    queryKey: ['liabilities', accountId, snapshot, 'verdict', document],
    queryFn: () => verify(document, props),
    enabled: document !== undefined,
    staleTime: Number.POSITIVE_INFINITY,
  })
  if (verdict === undefined) return null
  return (
    <p
      className="flex flex-wrap items-start gap-x-3 border-t border-rule px-6 py-3 text-sm"
      data-testid="liability"
      data-ok={verdict.problem === undefined}
    >
      {verdict.problem === undefined ? (
        <StateMark mark="settled" word="Balance proven" />
      ) : (
        <StateMark mark="failed" word={`The proof of your balance is not valid. ${verdict.problem}`} />
      )}
      {verdict.problem === undefined && <Words {...verdict.proof} />}
      <a
        className="link"
        href={`/api/liabilities/proof?number=${snapshot.number}`}
        download={`penny-liabilities-${snapshot.number}.json`}
      >
        Download the proof
      </a>
    </p>
  )
}

function Words({ leaf, snapshot }: LiabilityProof) {
  const { sum, onChain, leaves } = snapshot
  const time = <Time at={new Date(Number(snapshot.time)).toISOString()} show="clock" />
  if (leaf === undefined) return <span className="text-muted">The snapshot of {time} owes this account nothing.</span>
  const covered = onChain >= sum ? 'is covered by' : 'is more than the'
  return (
    <span className="text-muted">
      Your balance of {formatAmount(leaf.amount)} is leaf {formatCount(leaf.place + 1n)} of {formatCount(leaves)} in the
      snapshot of {time}; the sum of {formatAmount(sum)} {covered} {formatAmount(onChain)} on chain.
    </span>
  )
}

type Verdict = { readonly proof: LiabilityProof; readonly problem: string | undefined }

async function verify(
  document: unknown,
  { accountId, snapshot, issuer }: { accountId: string; snapshot: Snapshot; issuer: string | undefined },
): Promise<Verdict> {
  const [{ readLiabilityProof, verifyLiabilityProof }, { viemCrypto }] = await Promise.all([
    import('../../../../src/receipts/liability-proof.ts'),
    import('../../../../src/receipts/viem-crypto.ts'),
  ])
  const proof = readLiabilityProof(document)
  const checks = await verifyLiabilityProof(document, viemCrypto)
  // Without a leaf there is nothing to prove: the signature on the snapshot is checked all the same.
  const wrong = checks.find(({ ok, name }) => !ok && (name !== 'leaf' || proof.leaf !== undefined))
  return { proof, problem: wrong?.detail ?? contradiction(proof) }

  function contradiction({ leaf, snapshot: own }: LiabilityProof): string | undefined {
    if (leaf !== undefined && leaf.account !== accountId) return `It is of account ${leaf.account}, not of this one.`
    if (own.issuer !== issuer) return `It is signed by ${own.issuer}, not by ${issuer ?? 'the issuer of this service'}.`
    // What everyone can read must be what this account was shown.
    return own.signature === snapshot.signature ? undefined : `Snapshot ${own.number} is not the one that is published.`
  }
}
