import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ledgerSuite } from '../../test/support/suites.ts'
import { alertKindNames } from '../alerts/kinds.ts'
import { actorKinds } from '../db/account-log.ts'
import { limitWindows } from '../identity/api-keys.ts'
import { challengePurposes } from '../identity/challenges.ts'
import { deviceLoginStatuses } from '../identity/device-logins.ts'
import { roles } from '../identity/roles.ts'
import { signInMethods } from '../identity/sessions.ts'
import { entryKinds } from '../receipts/entry.ts'
import { deliveryStates } from '../webhooks/deliveries.ts'
import { disabledReasons } from '../webhooks/endpoints.ts'
import {
  endedStatuses,
  openPaymentStates,
  openTransferStates,
  paymentStates,
  sweepStates,
  transferKinds,
  transferStates,
  uncreditedSweepStates,
  usageSources,
} from './states.ts'

const ledger = ledgerSuite()

const lists: Readonly<Record<string, readonly string[]>> = {
  'account_log.actor_kind': actorKinds,
  'adjustments.kind': entryKinds.filter((kind) => kind !== 'request'),
  'alert_rules.kind': alertKindNames,
  'alerts.level': ['warning', 'error'],
  'api_keys.limit_window': limitWindows,
  'sign_in_challenges.purpose': challengePurposes,
  'device_logins.status': deviceLoginStatuses,
  'invitations.limit_window': limitWindows,
  'invitations.role': roles,
  'memberships.limit_window': limitWindows,
  'memberships.role': roles,
  'payments.state': paymentStates,
  'requests.status': endedStatuses,
  'requests.usage_source': usageSources,
  'sessions.method': signInMethods,
  'sweeps.state': sweepStates,
  'webhook_deliveries.state': deliveryStates,
  'webhook_endpoints.disabled_reason': disabledReasons,
  'transfers.kind': transferKinds,
  'transfers.state': transferStates,
}

// A value that only one side knows is a row that cannot be written, or one that the code cannot read.
test('the database accepts exactly the values that the code knows', async () => {
  const rows = await ledger.database.query<{ place: string; definition: string }>(
    `select c.conrelid::regclass || '.' || a.attname as place, pg_get_constraintdef(c.oid) as definition
       from pg_constraint c join pg_attribute a on a.attrelid = c.conrelid and a.attnum = any (c.conkey)
       join pg_class t on t.oid = c.conrelid
      where c.contype = 'c' and not t.relispartition`,
  )
  const accepted = rows.flatMap(({ place, definition }) => {
    const values = new RegExp(`\\(${place.split('.')[1]} = ANY \\('{([a-z0-9_,]+)}'::text\\[\\]\\)`).exec(
      definition,
    )?.[1]
    return values === undefined ? [] : [[place, values.split(',')] as const]
  })
  assert.deepEqual(
    Object.fromEntries(accepted),
    Object.fromEntries(Object.entries(lists).map(([place, values]) => [place, [...values]])),
  )
})

// A condition that the index does not imply reads the whole table.
test('what is open in the code is open in the partial indexes', async () => {
  const rows = await ledger.database.query<{ name: string; condition: string }>(
    `select indexrelid::regclass::text as name, pg_get_expr(indpred, indrelid) as condition
       from pg_index where indexrelid::regclass::text in ('payments_open', 'payments_one_under_way', 'sweeps_open', 'transfers_open')`,
  )
  const sqlLists = Object.fromEntries(
    rows.map(({ name, condition }) => [name, `('${/'{(.*)}'/.exec(condition)?.[1]?.replaceAll(',', "', '")}')`]),
  )
  assert.deepEqual(sqlLists, {
    payments_one_under_way: openPaymentStates,
    payments_open: openPaymentStates,
    sweeps_open: uncreditedSweepStates,
    transfers_open: openTransferStates,
  })
})
