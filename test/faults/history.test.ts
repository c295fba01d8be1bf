import assert from 'node:assert/strict'
import { test } from 'node:test'
import { findContradictions, type Row, type Seen } from './history.ts'
import type { Generated } from './model-upstream.ts'

// A checker that finds nothing proves nothing: each possible contradiction is shown to it once.

const digits = '0190000000007000800000000000000a'
const id = '01900000-0000-7000-8000-00000000000a'

/** A streamed answer of twenty tokens, with matching records on all three sides. */
const seen: Seen = {
  name: 1_000,
  stream: true,
  node: 'n',
  proxied: false,
  sentMs: 0,
  closedMs: 100,
  status: 200,
  requestId: `req_${digits}`,
  tokens: 20,
  whole: true,
  cost: 110n,
  error: undefined,
  left: false,
  hangUpAfterMs: undefined,
}
const generated: Generated = { digits, arrivedMs: 5, firstOutputMs: 10, finishedMs: 90, hungUp: false, tokens: 20 }
const row: Row = {
  id,
  name: 1_000,
  node: 'n',
  status: 'succeeded',
  voided: false,
  charged: 110n,
  prompt: 10,
  completion: 20,
  error: null,
  createdMs: 3,
  endedMs: 95,
}
const cut = { whole: false, cost: undefined, tokens: 12 }
const orphan = { status: 'failed', error: 'interrupted', prompt: 3, completion: 12, charged: 63n } as const
const voided = { status: 'failed', voided: true, charged: 0n, prompt: null, completion: null } as const
const hungUp = { finishedMs: undefined, hungUp: true, tokens: 14 }

type Case = readonly [seen: Partial<Seen>, rows: readonly Partial<Row>[], generated: readonly Partial<Generated>[]]

function contradictions([changed, rows, answers]: Case): readonly string[] {
  return findContradictions({
    seen: [{ ...seen, ...changed }],
    rows: rows.map((changes) => ({ ...row, ...changes })),
    generated: new Map([[1_000, answers.map((changes) => ({ ...generated, ...changes }))]]),
    checkpointTokensMax: 5,
  })
}

const truths: Readonly<Record<string, Case>> = {
  'answered and charged': [{}, [{}], [{}]],
  'refused before anything was held': [{ ...cut, tokens: 0, status: 503, error: 'overloaded' }, [], []],
  'killed before the hold': [{ ...cut, tokens: 0, status: undefined }, [], []],
  'killed after the hold': [{ ...cut, tokens: 0, status: undefined }, [{ ...voided, error: 'interrupted' }], []],
  'killed while streaming, charged up to the checkpoint': [cut, [orphan], [hungUp]],
  'killed after the end was written': [{ ...cut, tokens: 20 }, [{}], [{}]],
  'cancelled and charged for what was generated': [
    { ...cut, left: true },
    [{ status: 'cancelled', prompt: 9, completion: 13, charged: 74n }],
    [hungUp],
  ],
  'ended by another node while its own slept': [{ cost: 63n }, [orphan], [{}]],
}

for (const [what, truth] of Object.entries(truths)) {
  test(`true: ${what}`, () => assert.deepEqual(contradictions(truth), []))
}

const lies: Readonly<Record<string, Case>> = {
  'answered, and not in the ledger': [{}, [], []],
  'the ledger has it twice': [{}, [{}, { id: id.replace('a', 'b') }], [{}]],
  'told to cost 110, charged 111': [{}, [{ charged: 111n }], [{}]],
  'told to be': [{}, [{ id: id.replace('a', 'b') }], [{}]],
  'the upstream was asked without a hold': [{ ...cut, tokens: 0 }, [], [{}]],
  'the upstream was asked twice': [{}, [{}], [{}, {}]],
  'still held': [cut, [{ status: 'held', charged: 0n }], [hungUp]],
  'charged, and told that it failed': [{ ...cut, tokens: 0, status: 503, stream: false }, [{}], [{}]],
  'an answer that was not delivered is charged': [{ ...cut, tokens: 0, stream: false }, [orphan], [hungUp]],
  'charged for 18 tokens, where 0 to 17 are right': [
    cut,
    [{ ...orphan, completion: 18, charged: 93n }],
    [{ ...hungUp, tokens: 19 }],
  ],
  'charged for 14 tokens, where 0 to 13 are right': [
    cut,
    [{ ...orphan, completion: 14, charged: 73n }],
    [{ ...hungUp, tokens: 13 }],
  ],
  'charged for an input of 10 tokens': [cut, [{ ...orphan, prompt: 10, charged: 70n }], [hungUp]],
  'charged 64 at a wrong price': [cut, [{ ...orphan, charged: 64n }], [hungUp]],
  'charged without usage': [cut, [{ ...orphan, prompt: null }], [hungUp]],
  'succeeded, and the upstream has not finished': [{ ...cut }, [{}], [hungUp]],
  'charged 105 for what costs 110': [{ cost: 105n }, [{ charged: 105n }], [{}]],
  'charged whole, and cut short by an error': [{ ...cut, error: 'overloaded' }, [{}], [{}]],
  'whole, and cancelled in the ledger': [{ cost: 0n }, [{ ...voided, status: 'cancelled' }], [{}]],
  'void, and 12 tokens were delivered': [{ ...cut, left: true }, [{ ...voided, status: 'cancelled' }], [hungUp]],
  'that no client sent': [{}, [{}, { name: 1_001, id: id.replace('a', 'b') }], [{}]],
  'is charged 5': [{}, [{}, { status: 'refused', charged: 5n, id: id.replace('a', 'b') }], [{}]],
}

for (const [what, lie] of Object.entries(lies)) {
  test(`found: ${what}`, () => {
    const found = contradictions(lie)
    assert.ok(
      found.some((sentence) => sentence.includes(what)),
      found.join('\n'),
    )
  })
}
