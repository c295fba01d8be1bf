import { type ReactNode, useState } from 'react'
import type { LedgerRequest } from '../../api/shapes.ts'
import { type ExplainedLine, type Explanation, explainCharge } from '../../money/explain.ts'
import { atomic, formatCharge, formatCount, formatMillionths, formatPrice } from '../../money/format.ts'
import { useAnnounce } from '../../ui/announce.tsx'
import { Button } from '../../ui/button.tsx'
import { classNames } from '../../ui/class-names.ts'
import { StateMark } from '../../ui/state-mark.tsx'
import { Time } from '../../ui/time.tsx'
import { chargeSentence, mostHeld, returned } from './request-words.ts'

const names: Readonly<Record<ExplainedLine['item'], readonly [one: string, unit: string]>> = {
  input: ['Input', 'tokens'],
  cached: ['Cached input', 'tokens'],
  output: ['Output', 'tokens'],
  reasoning: ['Reasoning', 'tokens'],
  search: ['Web search', 'calls'],
  fetch: ['Web fetch', 'calls'],
}

/** How the quote became a charge: in one sentence, and line by line where there was anything to charge. */
export function Explain({ request }: { request: LedgerRequest }) {
  return (
    <div data-testid="explain" className="flex flex-col gap-3">
      <p>{chargeSentence(request)}</p>
      {request.status !== 'refused' && <Waterfall request={request} />}
    </div>
  )
}

/** Every line, and the proof that they add up. */
function Waterfall({ request }: { request: LedgerRequest }) {
  const explanation = explainCharge(request)
  const extended = atomic(request.extended_atomic)
  const held = mostHeld(request)
  const charged = atomic(request.charged_atomic)
  const givenBack = atomic(request.given_back_atomic)
  const running = request.status === 'held'
  return (
    <>
      <table className="w-full border-collapse">
        <caption className="sr-only">The charge, line by line</caption>
        <tbody>
          <Line
            label="Quote"
            note="the most it could cost without web search"
            amount={formatCharge(atomic(request.quote_atomic))}
          />
          {extended > 0n && (
            <Line label="Added for web search" note="held while it ran" amount={formatCharge(extended)} />
          )}
          <Line label={<StateMark mark="held" />} amount={formatCharge(held)} />
          {explanation.lines.map((line) => (
            <Line
              key={line.item}
              indent
              label={names[line.item][0]}
              note={lineNote(line)}
              amount={formatMillionths(line.amount)}
            />
          ))}
          {explanation.rounding > 0n && (
            <Line
              indent
              label="Rounding"
              note="rounded up once, to $0.000001"
              amount={formatMillionths(explanation.rounding)}
            />
          )}
          {explanation.borneByUs > 0n && (
            <Line indent label="Above the hold" note="not charged" amount={`−${formatCharge(explanation.borneByUs)}`} />
          )}
          {!running && (
            <>
              <Line strong label={<StateMark mark="charged" />} amount={formatCharge(charged)} testId="charged" />
              <Line label={<StateMark mark="refunded" />} amount={formatCharge(returned(request))} />
              {givenBack > 0n && (
                <Line label="Refunded later" note="as credit" amount={formatCharge(givenBack)} testId="given-back" />
              )}
            </>
          )}
        </tbody>
      </table>
      {!running && <Proof request={request} explanation={explanation} />}
    </>
  )
}

function lineNote({ item, units, price }: ExplainedLine): string {
  const unit = names[item][1]
  const each = unit === 'calls' ? `${formatPrice(price)} per call` : `${formatPrice(price)} per million`
  return `${formatCount(units)} ${units === 1 ? unit.slice(0, -1) : unit} × ${each}`
}

type LineProps = {
  label: ReactNode
  note?: string
  amount: string
  indent?: boolean
  strong?: boolean
  testId?: string
}

function Line({ label, note, amount, indent = false, strong = false, testId }: LineProps) {
  return (
    <tr className={classNames('border-b border-rule', strong && 'border-t border-t-edge')}>
      <th
        scope="row"
        className={classNames('py-1.5 text-left', strong ? 'font-medium' : 'font-normal', indent && 'pl-5')}
      >
        {label}
        {note !== undefined && <span className="ml-2 text-sm font-normal text-muted">{note}</span>}
      </th>
      <td
        className={classNames('num py-1.5 text-right whitespace-nowrap', strong && 'font-medium')}
        data-testid={testId}
      >
        {amount}
      </td>
    </tr>
  )
}

function Proof({ request, explanation }: { request: LedgerRequest; explanation: Explanation }) {
  const announce = useAnnounce()
  const [shown, setShown] = useState<string>()
  const recompute = () => {
    const { recomputed, borneByUs, agrees } = explainCharge(request)
    const amount = formatCharge(recomputed - borneByUs)
    const text = agrees
      ? `Recomputed in this browser: ${amount}, same as the ledger.`
      : `Recomputed in this browser: ${amount}. The ledger says ${formatCharge(atomic(request.charged_atomic))}.`
    setShown(text)
    announce(text)
  }
  return (
    <div className="flex flex-col gap-2">
      <p className="flex flex-wrap items-center gap-x-3 gap-y-1" data-testid="sum-check">
        <StateMark
          mark={explanation.agrees ? 'settled' : 'failed'}
          word={explanation.agrees ? 'The lines add up to the charge' : 'The lines do not add up to the charge'}
        />
        {request.price !== null && (
          <span className="text-sm text-muted">
            Prices:{' '}
            <a href="/v1/models" className="num link" title={`Price list ${request.price.version}`}>
              {request.price.version.slice(0, 12)}
            </a>
          </span>
        )}
        {request.usage?.source === 'counted' && (
          <span className="text-sm text-muted">We counted the tokens: the model reported none.</span>
        )}
      </p>
      <div className="flex flex-wrap items-center gap-3">
        <Button small onClick={recompute}>
          Recompute in this browser
        </Button>
        {shown !== undefined && (
          <span className="text-sm" data-testid="recomputed" data-agrees={explanation.agrees}>
            {shown}
          </span>
        )}
      </div>
      {request.ended_at !== null && (
        <p className="text-sm text-muted">
          Final since <Time at={request.ended_at} />.
        </p>
      )}
    </div>
  )
}
