import { z } from 'zod'
import { statementKinds } from '../../../ledger/statement.ts'
import { contract } from '../contract.ts'
import { address, amount, count, hash, instant, list, milliseconds, money, page, requestId, uuid } from '../shapes.ts'
import { account, assertion, session, signedMessage } from './sign-in.ts'

export const balance = z
  .object({
    object: z.literal('balance'),
    ...money('available', 'held', 'extended', 'gateway', 'credit', 'unsettled', 'in_flight', 'in_flight_cap'),
    ...money('pending_deposits', 'pending_withdrawals', 'deposited', 'withdrawn', 'charged', 'withdrawal_fee_max'),
    open_requests: count,
    oldest_hold_at: instant.nullable(),
    at: instant,
  })
  .meta({ id: 'Balance' })

/** Confirms an owner address: what a passkey or a wallet made of `POST /api/owner/challenge`. */
const ownerProof = z.union([z.strictObject({ credential: assertion }), signedMessage]).meta({ id: 'OwnerProof' })

const step = <const Name extends string>(...names: readonly [Name, ...Name[]]) =>
  z.object({
    name: z.enum(names),
    done: z.boolean(),
    at: instant.nullable(),
    tx_hash: hash.nullable(),
    block: z.string().nullable(),
  })

export const deposit = z
  .object({
    object: z.literal('deposit'),
    id: z.string(),
    ...money('amount'),
    source: z.string().meta({ description: 'chain, sandbox, …' }),
    sender: z.string().nullable(),
    state: z.enum(['seen', 'sweeping', 'confirmed', 'credited', 'failed']),
    reason: z.string().nullable(),
    tx_hash: hash.nullable(),
    created_at: instant,
    steps: z.array(step('seen', 'swept', 'credited')),
  })
  .meta({ id: 'Deposit' })

export const withdrawal = z
  .object({
    object: z.literal('withdrawal'),
    id: uuid,
    ...money('amount', 'receives', 'fee', 'credit_back'),
    recipient: address,
    state: z.enum(['requested', 'returning', 'returned', 'sent', 'confirmed', 'failed']),
    reason: z.string().nullable(),
    tx_hash: hash.nullable(),
    created_at: instant,
    changed_at: instant,
    steps: z.array(step('requested', 'returned', 'sent', 'confirmed')),
  })
  .meta({ id: 'Withdrawal' })

const month = z
  .string()
  .regex(/^20\d\d-(0[1-9]|1[0-2])$/, 'must be a month such as 2026-11')
  .meta({ description: 'A month in UTC', examples: ['2026-11'] })

export const statement = z
  .object({
    object: z.literal('statement'),
    month,
    from: instant,
    to: instant,
    is_over: z.boolean().meta({ description: 'False while the month goes on: then it closes on what there is now' }),
    first_month: month.meta({ description: 'The one in which the account was opened' }),
    ...money('opening', 'closing'),
    lines: z.array(
      z.object({
        kind: z.enum(statementKinds),
        model: z.string().nullable().meta({ description: 'Of inference' }),
        count,
        ...money('amount'),
      }),
    ),
    adds_up: z.boolean().meta({ description: 'Whether opening and lines sum to closing, which are read apart' }),
  })
  .meta({ id: 'Statement', description: 'Balances are all the account’s money, what open requests hold included' })

export const adjustment = z
  .object({
    object: z.literal('adjustment'),
    id: uuid,
    ...money('amount'),
    reason: z.string(),
    created_at: instant,
  })
  .meta({ id: 'Adjustment', description: 'A charge that was given back; below 0, such a gift taken back' })

/** What the receipt's signer signed, and where its batch stands. The provider decides the members beyond these. */
const receipt = z.looseObject({ object: z.literal('receipt'), id: requestId }).meta({ id: 'Receipt' })

export const fundsContracts = {
  getBalance: contract({
    operation: 'getBalance',
    method: 'GET',
    path: '/api/balance',
    summary: 'What can be spent, what is held, what is on its way in and out',
    access: 'session',
    answer: balance,
  }),
  listDeposits: contract({
    operation: 'listDeposits',
    method: 'GET',
    path: '/api/deposits',
    summary: 'Money that arrived, with the steps it has come, newest first',
    access: 'session',
    query: z.object(page),
    answer: list(deposit).extend({ deposit_address: address.nullable() }),
  }),
  listWithdrawals: contract({
    operation: 'listWithdrawals',
    method: 'GET',
    path: '/api/withdrawals',
    summary: 'Withdrawals, with the steps they have come, newest first',
    access: 'session',
    query: z.object(page),
    answer: list(withdrawal).extend({
      median_ms: milliseconds.nullable().meta({
        description:
          'From the order to the payment, in the middle of the last withdrawals of all accounts; null where there is none',
      }),
      median_of: count.meta({ description: 'How many withdrawals that is taken from' }),
    }),
  }),
  listAdjustments: contract({
    operation: 'listAdjustments',
    method: 'GET',
    path: '/api/adjustments',
    summary: 'Charges that the operator gave back, with the reason, newest first',
    access: 'session',
    query: z.object(page),
    answer: list(adjustment),
  }),
  createWithdrawal: contract({
    operation: 'createWithdrawal',
    method: 'POST',
    path: '/api/withdrawals',
    summary: 'Withdraws to the registered owner address; needs a recent sign-in',
    access: 'session',
    headers: z.object({
      'idempotency-key': z.string().min(8).max(255).meta({ description: 'One for each form: repeating it pays once' }),
    }),
    body: z.strictObject({ amount, recipient: address }),
    status: 202,
    answer: withdrawal,
  }),
  setOwner: contract({
    operation: 'setOwner',
    method: 'PUT',
    path: '/api/owner',
    summary:
      'Registers where withdrawals go; needs a recent sign-in. The first counts at once if the account has no money or with a proof, a changed one after a wait',
    access: 'session',
    body: z.strictObject({ address, proof: ownerProof.optional() }),
    answer: account,
  }),
  createOwnerChallenge: contract({
    operation: 'createOwnerChallenge',
    method: 'POST',
    path: '/api/owner/challenge',
    summary: 'What a passkey or a wallet of the account signs to confirm an owner address; good once, for five minutes',
    access: 'session',
    body: z.strictObject({
      address,
      wallet: address.optional().meta({ description: 'The wallet that will sign; absent: a passkey will' }),
    }),
    answer: z.object({
      object: z.literal('owner_challenge'),
      message: z.string().nullable().meta({ description: 'For the wallet, to be signed with personal_sign as it is' }),
      options: z.looseObject({ challenge: z.string() }).nullable().meta({
        description: 'For the passkey, in the form of parseRequestOptionsFromJSON. The challenge names the address',
      }),
    }),
  }),
  getStatement: contract({
    operation: 'getStatement',
    method: 'GET',
    path: '/api/statement',
    summary: 'A month’s opening balance, everything that moved it, and its closing balance',
    access: 'session',
    isHeavy: true,
    query: z.object({ month: month.optional(), format: z.enum(['json', 'csv']).optional() }),
    answer: statement,
    alsoAs: ['text/csv'],
  }),
  requestTestMoney: contract({
    operation: 'requestTestMoney',
    method: 'POST',
    path: '/api/faucet',
    summary: 'Test USDC, in the sandbox: to the deposit address, or into a wallet to deposit it from',
    access: 'sandbox',
    body: z.strictObject({ wallet: address.optional() }),
    status: 202,
    answer: z.object({ object: z.literal('faucet'), ...money('amount'), tx_hash: hash.nullable() }),
  }),
  mineBlocks: contract({
    operation: 'mineBlocks',
    method: 'POST',
    path: '/api/sandbox/mine',
    summary: 'Advances the sandbox chain',
    access: 'sandbox',
    body: z.strictObject({ blocks: z.int().min(1).max(1000).default(10) }),
    answer: z.object({ object: z.literal('sandbox'), block: z.string().nullable() }),
  }),
  failNextCall: contract({
    operation: 'failNextCall',
    method: 'POST',
    path: '/api/sandbox/fail-next',
    summary: 'Makes the sandbox model fail its next call',
    access: 'sandbox',
    answer: z.object({ object: z.literal('sandbox') }),
  }),
  slowModel: contract({
    operation: 'slowModel',
    method: 'POST',
    path: '/api/sandbox/slow',
    summary: 'Makes the sandbox model wait before its next call',
    access: 'sandbox',
    body: z.strictObject({ milliseconds: z.int().min(0).max(60_000).default(3_000) }),
    answer: z.object({ object: z.literal('sandbox') }),
  }),
  resetSandbox: contract({
    operation: 'resetSandbox',
    method: 'POST',
    path: '/api/sandbox/reset',
    summary: 'Begins again with an empty account and fresh test USDC; the one before stays in the books, left',
    access: 'sandbox',
    answer: session,
  }),
  getReceipt: contract({
    operation: 'getReceipt',
    method: 'GET',
    path: '/api/receipts/{id}',
    summary: 'The receipt of an ended request, to be verified by anybody; no prompt is in it',
    access: 'public',
    parameters: z.object({ id: requestId }),
    answer: receipt,
  }),
  getSolvency: contract({
    operation: 'getSolvency',
    method: 'GET',
    path: '/api/solvency',
    summary: 'Whether the chain holds what the ledger owes',
    access: 'public',
    answer: z
      .looseObject({
        ok: z.boolean().meta({ description: 'False also before the first check, when checked_at is null' }),
        checked_at: instant.nullable(),
        block: z.string().nullable(),
      })
      .meta({ id: 'Solvency' }),
  }),
} as const
