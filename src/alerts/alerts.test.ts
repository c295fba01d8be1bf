import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { type TestContext, test } from 'node:test'
import { SMTPServer } from 'smtp-server'
import { atEnd } from '../../test/support/at-end.ts'
import { farFromEndOf } from '../../test/support/far-from-end.ts'
import { charge, hold, openLedger, openPayer, settle } from '../../test/support/ledger.ts'
import { ledgerSuite } from '../../test/support/suites.ts'
import { newWallet, payFor, signedPayment } from '../../test/support/wallet-payments.ts'
import { createKey } from '../identity/api-keys.ts'
import { AlertWatch } from '../jobs/watch-alerts.ts'
import { creditDeposit } from '../ledger/deposits.ts'
import type { Payer } from '../ledger/hold-calls.ts'
import { requestRefund } from '../ledger/refunds.ts'
import { createRequestId } from '../ledger/request-id.ts'
import { advanceTransfer } from '../ledger/transfers.ts'
import { requestWithdrawal } from '../ledger/withdrawals.ts'
import { fromAtomic, zero } from '../money/usdc.ts'
import { deleteOldAlerts, evaluateAccounts, listAlerts } from './alerts.ts'
import { readEmail, removeEmail, setEmail, verifyEmail } from './emails.ts'
import { type AlertKind, alertKindNames, alertKinds } from './kinds.ts'
import { Mailer } from './mailer.ts'
import { setRule } from './rules.ts'

const ledger = ledgerSuite()

async function openListening(amount: bigint, keyTerms = {}): Promise<Payer> {
  const payer = await openPayer(ledger.database, amount, keyTerms)
  await ledger.database.query(
    `update accounts set event_types = '{alert.fired,alert.resolved}' where partition = $1 and id = $2`,
    [payer.partition, payer.accountId],
  )
  return payer
}

function warn(payer: Payer, kind: AlertKind, threshold: bigint): Promise<void> {
  return setRule(ledger.database, payer, { kind, threshold, rearm: alertKinds[kind].rearm(threshold) })
}

async function spend(payer: Payer, amount: bigint): Promise<void> {
  const holds = await openLedger(ledger.database)
  await holds.end(charge(await hold(holds, payer, amount), amount))
}

function deposit({ partition, accountId }: Payer, amount: bigint): Promise<boolean> {
  const { database } = ledger
  return creditDeposit(database, { partition, id: randomUUID(), accountId, amount: fromAtomic(amount), source: 'test' })
}

/** Kinds of the open alerts after an evaluation. */
async function openKinds(payer: Payer): Promise<readonly string[]> {
  await new AlertWatch(ledger.database).evaluateDue()
  return (await listAlerts(ledger.database, payer, 'open')).map(({ kind }) => kind).sort()
}

function eventsOf({ accountId }: Payer) {
  return ledger.database.query<{ type: string; kind: string }>(
    `select type, data->>'kind' as kind from events where account_id = $1 order by number`,
    [accountId],
  )
}

test('a balance alert fires once, is resolved by a deposit, and fires again; each time with one event', async () => {
  const payer = await openListening(10_000n)
  await setRule(ledger.database, payer, { kind: 'days_left', threshold: undefined, rearm: undefined })
  await warn(payer, 'balance_below', 5_000n)
  assert.deepEqual(await openKinds(payer), [])
  await spend(payer, 6_000n)
  assert.deepEqual(await openKinds(payer), ['balance_below'])
  // Two concurrent evaluations, as when a person changes a rule while the job runs.
  await Promise.all([1, 2, 3].map(() => evaluateAccounts(ledger.database, payer.partition, [payer.accountId])))
  await deposit(payer, 1_400n)
  assert.deepEqual(await openKinds(payer), ['balance_below'], 'above the threshold, below the re-arm level')
  await deposit(payer, 1_000n)
  assert.deepEqual(await openKinds(payer), [])
  await spend(payer, 6_400n)
  assert.deepEqual(await openKinds(payer), ['balance_empty'], 'an empty balance has its own alert')
  const told = (await eventsOf(payer)).map(({ type, kind }) => `${type} ${kind}`)
  assert.deepEqual(told, ['alert.fired balance_below', 'alert.resolved balance_below', 'alert.fired balance_empty'])
})

test('every kind of alert fires', async () => {
  await farFromEndOf('hour')
  const { database } = ledger
  const holds = await openLedger(database)
  const payer = await openListening(10_000_000n, { limit: fromAtomic(1_000_000n) })
  const { partition, accountId } = payer
  await warn(payer, 'balance_below', 9_900_000n)
  await warn(payer, 'days_left', 100n)
  await warn(payer, 'spend_hour', 900_000n)
  await warn(payer, 'spend_day', 900_000n)
  await warn(payer, 'spend_unusual', 5n)
  await warn(payer, 'error_rate', 50n)
  await spend(payer, 950_000n)
  for (let refused = 0; refused < 25; refused += 1)
    holds.refuse({
      requestId: createRequestId(partition, Date.now()),
      payer,
      model: 'm',
      stream: false,
      maxTokens: 1,
      errorCode: 'insufficient_balance',
    })
  await holds.drained()
  // Two days ago an hour cost a tenth of that.
  await database.query(
    `insert into usage_hours (partition, account_id, hour, key_id, model, succeeded, charged)
     values ($1, $2, date_trunc('hour', now(), 'UTC') - interval '2 days', $3, 'm', 1, 95000)`,
    [partition, accountId, payer.keyId],
  )
  // A charge whose payment makes no progress.
  await settle(database, [payer], 'received')
  await database.query(`update payments set created_at = now() - interval '3 hours' where account_id = $1`, [accountId])
  const recipient = `0x${'a'.repeat(40)}`
  const withdrawal = {
    partition,
    accountId,
    id: randomUUID(),
    amount: fromAtomic(1_000n),
    recipient,
    min: fromAtomic(1n),
  }
  await requestWithdrawal(database, withdrawal)
  await database.query(`update transfers set created_at = now() - interval '2 hours' where id = $1`, [withdrawal.id])
  await database.query(
    `insert into webhook_endpoints (partition, id, account_id, url, types, secret, sent_to, due_at, disabled_at, disabled_reason)
     values ($1, $2, $3, 'https://example.com/hook', '{alert.fired}', decode(repeat('00', 32), 'hex'), 0, now(), now(), 'failing')`,
    [partition, randomUUID(), accountId],
  )
  const kinds = await openKinds(payer)
  assert.deepEqual(
    alertKindNames.filter((kind) => !kinds.includes(kind)),
    ['balance_empty'],
  )
  assert.equal(kinds.length, (await eventsOf(payer)).length)
  const messages = (await listAlerts(database, payer, 'open')).map(({ message }) => message)
  for (const part of [
    'spent in this hour, 10 times the usual 0.095 USDC. Your warning is set to 5 times the usual.',
    'has spent 0.95 of its 1 USDC limit (95 %). Your warning is set to 80 %.',
    'of 26 requests failed or were refused',
    'The webhook endpoint example.com was disabled: no delivery succeeded for three days.',
    'A withdrawal has been in progress for 120 minutes.',
  ])
    assert.ok(
      messages.some((message) => message.includes(part)),
      `${part}\n${messages.join('\n')}`,
    )
  await database.query(`update transfers set state = 'failed' where id = $1`, [withdrawal.id])
  await database.query(
    `update accounts set gateway = gateway + 1000, withdrawn = withdrawn - 1000 where partition = $1 and id = $2`,
    [partition, accountId],
  )
  await database.query('delete from webhook_endpoints where account_id = $1', [accountId])
  await database.query(`delete from usage_hours where account_id = $1 and charged = 95000`, [accountId])
  const left = await openKinds(payer)
  assert.deepEqual(
    ['withdrawal_stuck', 'webhook_disabled', 'spend_unusual'].filter((kind) => left.includes(kind)),
    [],
  )
})

test('a wallet that pays each request gets no low-balance alert until it has API keys, and a late refund raises an alert', async () => {
  const { database } = ledger
  const holds = await openLedger(database)
  const wallet = await newWallet(database)
  const { partition, accountId } = wallet
  const buy = async (value: bigint, cost: bigint) => {
    const decision = await payFor(database, holds, signedPayment(wallet, value), value)
    assert.ok(typeof decision !== 'string' && 'hold' in decision)
    await holds.end(charge(decision.hold, cost))
  }
  await buy(100n, 100n)
  await warn(wallet, 'balance_below', 5_000n)
  assert.deepEqual(await openKinds(wallet), [])
  await createKey(database, { partition, accountId, name: 'agent' })
  await buy(50n, 50n)
  assert.deepEqual(await openKinds(wallet), ['balance_empty'])
  const [alert] = await listAlerts(database, wallet, 'open')
  assert.match(alert!.message, /credit of this wallet is used up.*over x402/)
  assert.doesNotMatch(alert!.message, /deposit/i)
  await buy(9_000n, 0n)
  assert.deepEqual(await openKinds(wallet), [])
  const refund = await requestRefund(database, {
    partition,
    accountId,
    id: randomUUID(),
    amount: fromAtomic(1_000n),
    min: fromAtomic(1n),
    transferGas: zero,
  })
  await database.query(`update transfers set created_at = now() - interval '2 hours' where id = $1`, [refund.id])
  assert.deepEqual(await openKinds(wallet), ['withdrawal_stuck'])
  await advanceTransfer(database, refund, { state: 'failed' })
})

test('an account that never deposited is not warned of its balance, and resolved alerts are deleted after a month', async () => {
  const { database } = ledger
  const payer = await openListening(0n)
  await warn(payer, 'balance_below', 5_000n)
  assert.deepEqual(await openKinds(payer), [])
  const { partition, accountId } = payer
  await database.query(
    `insert into alerts (partition, account_id, kind, subject, level, message, value, fired_at, resolved_at)
     values ($1, $2, 'spend_day', '', 'warning', 'old', 1, now() - interval '40 days', now() - interval '31 days')`,
    [partition, accountId],
  )
  await deleteOldAlerts(database)
  assert.deepEqual(await listAlerts(database, payer, 'all'), [])
})

type Mail = { readonly to: readonly string[]; readonly text: string }

type Refusal = () => Error | undefined

/** A real SMTP server, which refuses the recipient or the sender that `refuse` and `refuseSender` say. */
async function startSmtp(t: TestContext, refuse: Refusal = () => undefined, refuseSender: Refusal = () => undefined) {
  const mails: Mail[] = []
  const server = new SMTPServer({
    authOptional: true,
    disabledCommands: ['STARTTLS', 'AUTH'],
    onMailFrom: (_address, _session, done) => done(refuseSender()),
    onRcptTo: (_address, _session, done) => done(refuse()),
    onData(stream, { envelope }, done) {
      const chunks: Buffer[] = []
      stream.on('data', (chunk: Buffer) => chunks.push(chunk))
      stream.on('end', () => {
        const to = envelope.rcptTo.map(({ address }) => address)
        // Quoted-printable: long lines are folded.
        mails.push({ to, text: Buffer.concat(chunks).toString().replaceAll('=\r\n', '').replaceAll('=3D', '=') })
        done()
      })
    },
  })
  server.listen(0, '127.0.0.1')
  await once(server.server, 'listening')
  atEnd(t, () => new Promise<void>((resolve) => server.close(() => resolve())))
  return { mails, url: `smtp://127.0.0.1:${(server.server.address() as AddressInfo).port}` }
}

function openMailer(t: TestContext, smtpUrl: string, errors: unknown[] = []): Mailer {
  const { database } = ledger
  const from = 'Penny <alerts@example.com>'
  const mailer = new Mailer({ database, smtpUrl, from, onError: (error) => void errors.push(error) })
  atEnd(t, async () => mailer.close())
  return mailer
}

const linkOf = (token: string) => `https://example.com/settings?verify-email=${token}#alerts`

test('alerts are mailed to an address that was verified from the account itself, and to no other', async (t) => {
  await farFromEndOf('day')
  const { database } = ledger
  const { mails, url } = await startSmtp(t)
  const mailer = openMailer(t, url)
  const [payer, stranger] = [await openListening(10_000n), await openListening(10_000n)]
  await warn(payer, 'balance_below', 9_000n)
  await warn(payer, 'spend_day', 1_000n)
  await database.transaction((connection) => setEmail(connection, payer, 'ada@example.com', linkOf))
  await spend(payer, 2_000n)
  await openKinds(payer)
  await mailer.send()
  assert.deepEqual(
    mails.map(({ to }) => to),
    [['ada@example.com']],
    'the link, and no alert before it was opened',
  )
  const token = /verify-email=([\w-]{43})/.exec(mails[0]!.text)![1]!
  assert.equal(await verifyEmail(database, stranger, token), undefined)
  assert.equal(await verifyEmail(database, payer, `${token.slice(1)}A`), undefined)
  assert.equal(await verifyEmail(database, payer, token), 'ada@example.com')
  assert.equal(await verifyEmail(database, payer, token), undefined, 'a link works once')
  await setRule(database, payer, { kind: 'spend_day', threshold: undefined, rearm: undefined })
  await openKinds(payer)
  await warn(payer, 'spend_day', 1_500n)
  await openKinds(payer)
  await mailer.send()
  await mailer.send()
  assert.equal(mails.length, 2)
  assert.match(mails[1]!.text, /0\.002 USDC spent today \(UTC\)\. Your warning is set to 0\.0015 USDC\./)
  assert.match(mails[1]!.text, /^Content-Type: text\/plain/m)

  // Another address has to be verified again; a removed one gets nothing.
  await database.transaction((connection) => setEmail(connection, payer, 'eve@example.com', linkOf))
  assert.equal((await readEmail(database, payer))!.verifiedAt, undefined)
  await database.transaction((connection) => removeEmail(connection, payer))
  await mailer.send()
  assert.deepEqual(
    mails.slice(2).map(({ to }) => to),
    [['ada@example.com']],
  )
  assert.match(mails[2]!.text, /The e-mail address for alerts was changed/)
  assert.equal(await readEmail(database, payer), undefined)
  await database.transaction((connection) => setEmail(connection, payer, 'eve@example.com', linkOf))
  await assert.rejects(
    database.transaction((connection) => setEmail(connection, payer, 'eve@example.com', linkOf)),
    { code: 'rate_limited' },
  )
  const poor = await openPayer(database, 0n)
  await assert.rejects(
    database.transaction((connection) => setEmail(connection, poor, 'x@example.com', linkOf)),
    {
      code: 'invalid_value',
    },
  )
  await database.transaction((connection) => removeEmail(connection, payer))
})

test('an unavailable mail server, or one that refuses an address, stops nothing: mail waits or is dropped', async (t) => {
  const { database } = ledger
  const payer = await openListening(10_000n)
  await database.transaction((connection) => setEmail(connection, payer, 'bob@example.com', linkOf))
  await database.query('update alert_emails set verified_at = now() where account_id = $1', [payer.accountId])
  await database.query('delete from alert_mails where account_id = $1', [payer.accountId])
  await warn(payer, 'balance_below', 9_000n)
  await spend(payer, 2_000n)
  assert.deepEqual(await openKinds(payer), ['balance_below'])
  const errors: unknown[] = []
  // Nothing listens on port 9.
  await openMailer(t, 'smtp://127.0.0.1:9', errors).send()
  const waiting = () =>
    database.query<{ attempts: number }>('select attempts from alert_mails where account_id = $1', [payer.accountId])
  assert.deepEqual([errors.length, await waiting()], [1, [{ attempts: 1 }]])
  await database.query('update alert_mails set due_at = now()')
  // An expired registration of the sender's domain must not cost a single mail.
  const ofSender = Object.assign(new Error('sender not allowed'), { responseCode: 550 })
  const strict = await startSmtp(t, undefined, () => ofSender)
  await openMailer(t, strict.url, errors).send()
  assert.deepEqual([errors.length, await waiting()], [2, [{ attempts: 2 }]])
  await database.query('update alert_mails set due_at = now()')
  const refusal = Object.assign(new Error('no such mailbox'), { responseCode: 550 })
  const { url } = await startSmtp(t, () => refusal)
  await openMailer(t, url, errors).send()
  assert.deepEqual([errors.length, await waiting()], [3, []])
})

test('an account is mailed at most ten alerts an hour', async () => {
  await farFromEndOf('day')
  const { database } = ledger
  const payer = await openListening(10_000n)
  await database.transaction((connection) => setEmail(connection, payer, 'carol@example.com', linkOf))
  await database.query('update alert_emails set verified_at = now() where account_id = $1', [payer.accountId])
  await spend(payer, 2_000n)
  for (let turn = 0; turn < 12; turn += 1) {
    await warn(payer, 'spend_day', 1_000n)
    await evaluateAccounts(database, payer.partition, [payer.accountId])
    await setRule(database, payer, { kind: 'spend_day', threshold: undefined, rearm: undefined })
    await evaluateAccounts(database, payer.partition, [payer.accountId])
  }
  const [row] = await database.query<{ count: bigint }>(
    `select count(*) as count from alert_mails where account_id = $1 and subject like 'Penny alert%'`,
    [payer.accountId],
  )
  assert.equal(row!.count, 10n)
})
