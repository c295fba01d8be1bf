import { z } from 'zod'
import { alertKindNames, alertLevels, alertUnits } from '../../alerts/kinds.ts'
import { contract } from '../contract.ts'
import { instant, list, text } from '../shapes.ts'

const kind = z.enum(alertKindNames)

const alert = z
  .object({
    object: z.literal('alert'),
    kind,
    subject: z.string().nullable().meta({ description: 'Id of the API key or webhook endpoint; null for the account' }),
    level: z.enum(alertLevels),
    message: z.string().meta({ description: 'Message at the time the alert fired' }),
    href: z.string().meta({ description: 'Dashboard page with the details' }),
    fired_at: instant,
    resolved_at: instant.nullable(),
  })
  .meta({ id: 'Alert' })

const level = z
  .string()
  .regex(/^\d{1,12}(\.\d{1,6})?$/, 'must be a number such as "2.50" or "80", as a string')
  .meta({ description: 'In the unit of the kind: an amount of USDC, or a whole number', examples: ['2.50'] })

const rule = z
  .object({
    object: z.literal('alert_rule'),
    kind,
    unit: z.enum(alertUnits).meta({ description: 'Unit of the threshold; none: the rule has no threshold' }),
    fires: z.enum(['below', 'above']).meta({ description: 'Below the threshold, or at it and above' }),
    enabled: z.boolean(),
    threshold: level.nullable().meta({ description: 'Null when it is off' }),
    rearm: level.nullable().meta({ description: 'At this level a fired alert is resolved and can fire again' }),
    initial: z.boolean().meta({ description: 'True while the account uses the initial rule' }),
  })
  .meta({ id: 'AlertRule' })

const email = z
  .object({
    object: z.literal('alert_email'),
    available: z.boolean().meta({ description: 'Whether this service sends mail' }),
    address: z.string().nullable(),
    verified_at: instant
      .nullable()
      .meta({ description: 'Null until the confirmation link is opened; no alert is mailed before that' }),
  })
  .meta({ id: 'AlertEmail' })

export const alertContracts = {
  listAlerts: contract({
    operation: 'listAlerts',
    method: 'GET',
    path: '/api/alerts',
    summary: 'List alerts: open ones first, then those that were resolved within 30 days; at most 100',
    access: 'session',
    role: 'viewer',
    answer: list(alert),
  }),
  listAlertRules: contract({
    operation: 'listAlertRules',
    method: 'GET',
    path: '/api/alerts/rules',
    summary: 'List the rule of every kind of alert',
    access: 'session',
    role: 'viewer',
    answer: list(rule),
  }),
  setAlertRule: contract({
    operation: 'setAlertRule',
    method: 'PUT',
    path: '/api/alerts/rules/{kind}',
    summary: 'Set the rule of one kind of alert, or turn it off',
    access: 'session',
    role: 'admin',
    parameters: z.object({ kind }),
    body: z.strictObject({
      enabled: z.boolean(),
      threshold: level.optional().meta({ description: 'Required unless the unit is none' }),
      rearm: level.optional().meta({ description: 'Default: slightly beyond the threshold' }),
    }),
    answer: rule,
  }),
  getAlertEmail: contract({
    operation: 'getAlertEmail',
    method: 'GET',
    path: '/api/alerts/email',
    summary: 'Get the address that alerts are mailed to',
    access: 'session',
    role: 'admin',
    answer: email,
  }),
  setAlertEmail: contract({
    operation: 'setAlertEmail',
    method: 'PUT',
    path: '/api/alerts/email',
    summary: 'Set the address that alerts are mailed to. It gets a link first; at most three links a day',
    access: 'session',
    role: 'admin',
    body: z.strictObject({
      address: z
        .email('must be an e-mail address')
        .max(254)
        .meta({ examples: ['ops@example.com'] }),
    }),
    answer: email,
  }),
  removeAlertEmail: contract({
    operation: 'removeAlertEmail',
    method: 'DELETE',
    path: '/api/alerts/email',
    summary: 'Remove the e-mail address for alerts',
    access: 'session',
    role: 'admin',
    status: 204,
  }),
  verifyAlertEmail: contract({
    operation: 'verifyAlertEmail',
    method: 'POST',
    path: '/api/alerts/email/verify',
    summary: 'Confirm the address, with the token of the link that was mailed to it',
    access: 'session',
    role: 'admin',
    body: z.strictObject({ token: text(100) }),
    answer: email,
  }),
} as const
