import { z } from 'zod'
import { standings } from '../../observe/outcomes.ts'
import { contract } from '../contract.ts'
import { address, count, instant, list, money, optionalMoney, page, text, uuid } from '../shapes.ts'

const operatorAccount = z
  .object({
    object: z.literal('operator_account'),
    id: uuid,
    name: z.string(),
    deposit_address: address.nullable(),
    owner_address: address.nullable(),
    wallet: address
      .nullable()
      .meta({ description: 'Wallet of an account that pays over x402; such an account is created without a sign-up' }),
    ...money('available', 'held', 'unsettled'),
    ...money('spend_30d'),
    status: z.enum(['open', 'suspended', 'closed']),
    suspended_reason: z.string().nullable(),
    created_at: instant,
    last_request_at: instant.nullable(),
  })
  .meta({ id: 'OperatorAccount' })

const revenue = {
  requests: count,
  ...money('charged', 'search'),
  searches: count,
  ...optionalMoney('upstream_cost', 'margin'),
}

const runbook = z
  .string()
  .meta({ description: 'The documentation page that says what to do', examples: ['/docs/runbooks/incident'] })

const attention = z.object({
  level: z.enum(['error', 'warning']),
  code: z.string(),
  title: z.string(),
  detail: z.string(),
  since: instant.nullable(),
  account_id: uuid.nullable(),
  runbook,
})

export const operatorContracts = {
  listOperatorAccounts: contract({
    operation: 'listOperatorAccounts',
    method: 'GET',
    path: '/api/operator/accounts',
    summary: 'List or search all accounts, newest first. For operators',
    access: 'operator',
    query: z.object({
      find: text(200).optional(),
      kind: z.enum(['wallet']).optional().meta({ description: '`wallet`: accounts that pay over x402' }),
      ...page,
    }),
    answer: list(operatorAccount),
  }),
  getOperatorRevenue: contract({
    operation: 'getOperatorRevenue',
    method: 'GET',
    path: '/api/operator/revenue',
    summary:
      'Get the charges of all accounts, the cost of providers, and the margin, by day (UTC), model and provider. For operators',
    access: 'operator',
    query: z.object({ days: z.coerce.number().int().min(1).max(90).default(7) }),
    answer: z.object({
      object: z.literal('operator_revenue'),
      from: z.iso.date(),
      to: z.iso.date(),
      total: z.object({ ...revenue, ...money('given_back') }),
      models: z.array(z.object({ model: z.string(), ...revenue })),
      providers: z
        .array(
          z.object({
            model: z.string(),
            provider: z.string().meta({ description: 'Provider of the last attempt; empty without one' }),
            attempts: count.meta({ description: 'Requests sent to providers' }),
            ...revenue,
          }),
        )
        .meta({ description: 'By model and provider' }),
      days: z.array(
        z.object({
          day: z.iso.date(),
          ...revenue,
          ...money('given_back'),
          models: z.array(z.object({ model: z.string(), ...revenue })),
        }),
      ),
      upstream_cost_note: z
        .string()
        .meta({ description: 'Explains missing cost data; empty when cost and margin are complete' }),
    }),
  }),
  getOperatorHealth: contract({
    operation: 'getOperatorHealth',
    method: 'GET',
    path: '/api/operator/health',
    summary:
      'Get the health of nodes, queues, upstream, chain, gas, solvency and audit, and open problems. For operators',
    access: 'operator',
    answer: z.object({
      object: z.literal('operator_health'),
      at: instant,
      attention: z.array(attention),
      nodes: z.array(
        z.object({
          id: uuid,
          started_at: instant,
          lease_seconds: z.number(),
          alive: z.boolean(),
          this_node: z.boolean(),
        }),
      ),
      parts: z.array(
        z.object({
          name: z.string(),
          state: z.enum([...standings, 'last_failed', 'off', 'unknown']),
          detail: z.string(),
        }),
      ),
      queues: z.array(
        z.object({
          name: z.string(),
          waiting: count,
          ...optionalMoney('amount'),
          oldest_seconds: z.number().nullable(),
        }),
      ),
    }),
  }),
} as const
