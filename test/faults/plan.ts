import {
  type FailpointName,
  failpointNames,
  type WebhookFailpointName,
  webhookFailpointNames,
} from '../../src/process/failpoints.ts'
import type { Random } from './random.ts'

/** A fault of one node. */
export type NodeFault =
  /** It dies at a failpoint. */
  | { readonly type: 'failpoint'; readonly name: FailpointName; readonly reach: number }
  /** It is killed at a random time. */
  | { readonly type: 'kill'; readonly afterMs: number }
  /** It is suspended for longer than its lease, then resumed. */
  | { readonly type: 'pause'; readonly afterMs: number }
  | { readonly type: 'terminate'; readonly afterMs: number }
  /** Its database connections break. */
  | { readonly type: 'database-cut'; readonly afterMs: number }
  /** Its clients' connections break. */
  | { readonly type: 'client-cut'; readonly afterMs: number }
  /** A statement that moves money is executed and its reply is lost, or it never arrives. */
  | { readonly type: 'lost'; readonly what: MoneyStatement; readonly when: 'reply-lost' | 'unheard' }
  /** A statement that moves money arrives after its client has given up the connection and repeated it. */
  | { readonly type: 'late'; readonly what: MoneyStatement; readonly ms: number }

const moneyStatements = ['place_holds', 'end_requests'] as const
type MoneyStatement = (typeof moneyStatements)[number]

/** A fault of the process that delivers webhooks. */
export type DelivererFault =
  | { readonly type: 'failpoint'; readonly name: WebhookFailpointName; readonly reach: number }
  | { readonly type: 'kill'; readonly afterMs: number }

/** A fault of PostgreSQL. */
export type PostgresFault = { readonly type: 'kill' | 'restart' | 'pause'; readonly afterMs: number }

export type Plan = {
  readonly nodes: readonly NodeFault[]
  readonly postgres: readonly PostgresFault[]
  readonly deliverers: readonly DelivererFault[]
}

export type PlanSize = {
  /** Kills of service processes: half of them at a failpoint, the others at a random time. */
  readonly kills: number
  readonly postgresKills: number
}

// At a higher pass, mostly another request would be hit.
const reachMax: Partial<Record<FailpointName, number>> = { on_chunk: 40, after_checkpoint: 6 }
const reachMaxOtherwise = 4
const deliveriesMax = 8
// Longer than most requests last: many of these statements arrive after the end of their request, or of their node.
const lateMsMax = 3_000

/** All faults of a round, in a random order that depends on the seed only. */
export function makePlan(random: Random, { kills, postgresKills }: PlanSize): Plan {
  const share = (divisor: number) => Math.max(1, Math.round(kills / divisor))
  const afterMs = () => random.between(50, 900)
  const many = <Fault>(count: number, make: (index: number) => Fault) =>
    Array.from({ length: count }, (_, i) => make(i))
  const nodes: NodeFault[] = [
    ...many(
      Math.ceil(kills / 2),
      (index): NodeFault => failpoint(random, failpointNames[index % failpointNames.length]!),
    ),
    ...many(Math.floor(kills / 2), (): NodeFault => ({ type: 'kill', afterMs: afterMs() })),
    ...many(share(20), (): NodeFault => ({ type: 'pause', afterMs: afterMs() })),
    ...many(share(20), (): NodeFault => ({ type: 'terminate', afterMs: afterMs() })),
    ...many(share(15), (): NodeFault => ({ type: 'database-cut', afterMs: afterMs() })),
    ...many(share(15), (): NodeFault => ({ type: 'client-cut', afterMs: afterMs() })),
    ...moneyStatements.flatMap((what) => [
      ...many(share(6), (): NodeFault => ({ type: 'lost', what, when: 'reply-lost' })),
      ...many(share(6), (): NodeFault => ({ type: 'lost', what, when: 'unheard' })),
      ...many(share(6), (): NodeFault => ({ type: 'late', what, ms: random.between(0, lateMsMax) })),
    ]),
  ]
  const pauses = Math.max(1, Math.round(postgresKills / 4))
  const postgres: PostgresFault[] = [
    ...many(postgresKills, (): PostgresFault => ({ type: 'kill', afterMs: random.between(100, 800) })),
    ...many(pauses, (): PostgresFault => ({ type: 'restart', afterMs: random.between(100, 800) })),
    ...many(pauses, (): PostgresFault => ({ type: 'pause', afterMs: random.between(100, 800) })),
  ]
  const deliverers: DelivererFault[] = [
    ...many(Math.max(webhookFailpointNames.length, share(10)), (index): DelivererFault => {
      const name = webhookFailpointNames[index % webhookFailpointNames.length]!
      return { type: 'failpoint', name, reach: random.between(1, deliveriesMax) }
    }),
    ...many(share(20), (): DelivererFault => ({ type: 'kill', afterMs: random.between(500, 3_000) })),
  ]
  return { nodes: random.shuffle(nodes), postgres: random.shuffle(postgres), deliverers: random.shuffle(deliverers) }
}

function failpoint(random: Random, name: FailpointName): NodeFault {
  return { type: 'failpoint', name, reach: random.between(1, reachMax[name] ?? reachMaxOtherwise) }
}
