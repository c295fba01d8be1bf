import { z } from 'zod'
import { standings } from '../../observe/outcomes.ts'
import { contract } from '../contract.ts'
import { instant, milliseconds } from '../shapes.ts'

const part = z.enum([...standings, 'off'])
const health = {
  ok: z.boolean().meta({ description: 'Whether requests were accepted' }),
  model: part,
  search: part,
  chain: part,
  database_ms: milliseconds.nullable().meta({ description: 'Response time of the database; null without an answer' }),
}

export const statusContracts = {
  getStatus: contract({
    operation: 'getStatus',
    method: 'GET',
    path: '/api/status',
    summary: 'Get the status of the service and its components, now and over the last 24 hours of this node',
    access: 'public',
    answer: z
      .object({
        object: z.literal('status'),
        ...health,
        history: z.array(z.object({ start: instant, ...health })).meta({
          description: 'The worst state of each five minutes, oldest first; missing while the node was not running',
        }),
      })
      .meta({ id: 'Status' }),
  }),
} as const
