import { z } from 'zod'
import { statementKinds } from '../../ledger/statement.ts'
import { depositStates, withdrawalStates } from '../../ledger/states.ts'
import { contract } from '../contract.ts'
import { address, amount, count, hash, instant, list, milliseconds, money, page, requestId, uuid } from '../shapes.ts'
import { liabilityProof, receipt, receiptsLine, snapshot, snapshotQuery } from './receipt.ts'
import { account, challenge, confirmation, session, signingWallet } from './sign-in.ts'

export const balance = z
  .object({
    object: z.literal('balance'),
    account_id: uuid,
    ...money('available', 'held', 'extended', 'gateway', 'credit', 'refundable', 'unsettled'),
    ...money('in_flight', 'in_flight_cap', 'withdrawal_min', 'withdrawal_fee_max'),
    ...money('pending_deposits', 'pending_withdrawals', 'deposited', 'withdrawn', 'charged', 'given_back'),
    open_requests: count,
    oldest_hold_at: instant.nullable(),
    at: instant,
  })
  .meta({ id: 'Balance' })

const idempotencyKey = z.object({
  'idempotency-key': z
    .string()
    .min(8)
    .max(255)
    .meta({ description: 'Unique per payout; a repeated request pays only once' }),
})

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
    source: z.string().meta({ description: 'chain, or x402 (a payment of a wallet account)' }),
    sender: z.string().nullable(),
    state: z.enum(depositStates),
    reason: z.string().nullable(),
    waits_until: instant.nullable().meta({
      description:
        'Deposits below 1 USDC are credited together, at most once every 10 minutes, and not before this time',
    }),
    tx_hash: hash.nullable(),
    created_at: instant,
    steps: z.array(step('seen', 'swept', 'credited')),
  })
  .meta({ id: 'Deposit' })

export const withdrawal = z
  .object({
    object: z.literal('withdrawal'),
    id: uuid,
    ...money('amount', 'receives', 'fee'),
    recipient: address,
    is_refund: z.boolean().meta({ description: 'Unused credit of a wallet account, refunded to its wallet' }),
    state: z.enum(withdrawalStates),
    reason: z.string().nullable(),
    tx_hash: hash.nullable(),
    created_at: instant,
    changed_at: instant,
    steps: z.array(step('requested', 'settled', 'sent', 'confirmed')),
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
    is_over: z
      .boolean()
      .meta({ description: 'False for the current month, whose closing balance is the current balance' }),
    first_month: month.meta({ description: 'The month in which the account was opened' }),
    ...money('opening', 'closing'),
    lines: z.array(
      z.object({
        kind: z.enum(statementKinds),
        model: z.string().nullable().meta({ description: 'Of inference' }),
        count,
        ...money('amount'),
      }),
    ),
    keys: z
      .array(
        z.object({
          key: z.object({ id: uuid, name: z.string(), hint: z.string() }),
          requests: count,
          searches: count,
          ...money('inference', 'search', 'amount'),
        }),
      )
      .meta({ description: 'Charges by key, largest first; their sum equals the lines of inference and search' }),
    adds_up: z.boolean().meta({
      description: 'Whether the opening balance plus all lines equals the closing balance, which is read independently',
    }),
  })
  .meta({ id: 'Statement', description: 'Balances include money held by open requests' })

export const adjustment = z
  .object({
    object: z.literal('adjustment'),
    id: uuid,
    ...money('amount'),
    reason: z.string(),
    created_at: instant,
  })
  .meta({ id: 'Adjustment', description: 'A refunded charge; negative: a refund that was taken back' })

const sum = (description: string) =>
  z
    .string()
    .optional()
    .meta({ description, examples: ['24.998291'] })

/** Absent before the first check. */
const solvencySums = {
  object: z.literal('solvency').optional(),
  issuer: z.string().optional().meta({ description: 'Signs the receipts of this service' }),
  accounts: count.optional().meta({ description: 'Number of accounts that were compared' }),
  ...sums({
    owed: 'What the accounts must have at the gateway according to the ledger',
    on_chain: 'What they have at the gateway',
    seller: 'Balance of the seller at the gateway: charged and paid',
    owed_back: 'Refunds of paid charges that the seller still owes',
    seller_short: 'How much more the seller owes than it has',
    unsettled: 'Charged and not yet paid on chain',
  }),
  short: z
    .array(z.object({ address, owed_atomic: z.string(), on_chain_atomic: z.string() }))
    .optional()
    .meta({ description: 'Accounts that have less at the gateway than the ledger owes them' }),
}

function sums<const Name extends string>(about: Readonly<Record<Name, string>>) {
  const members = Object.entries<string>(about).flatMap(([name, description]) => [
    [`${name}_atomic`, sum(description)],
    [name, sum(description)],
  ])
  return Object.fromEntries(members) as { [name in Name | `${Name}_atomic`]: ReturnType<typeof sum> }
}

export const fundsContracts = {
  getBalance: contract({
    operation: 'getBalance',
    method: 'GET',
    path: '/api/balance',
    summary: 'Get available, held and pending money',
    access: 'session',
    role: 'viewer',
    scope: 'usage:read',
    answer: balance,
  }),
  listDeposits: contract({
    operation: 'listDeposits',
    method: 'GET',
    path: '/api/deposits',
    summary: 'List deposits with their steps, newest first',
    access: 'session',
    role: 'viewer',
    scope: 'usage:read',
    query: z.object(page),
    answer: list(deposit).extend({
      deposit_address: address.nullable().meta({
        description:
          'Assigned at the first call. Null for a wallet account, which pays over x402, and without a chain. Also null if your network requested too many addresses; try again later',
      }),
    }),
  }),
  listWithdrawals: contract({
    operation: 'listWithdrawals',
    method: 'GET',
    path: '/api/withdrawals',
    summary: 'List withdrawals with their steps, newest first',
    access: 'session',
    role: 'viewer',
    scope: 'usage:read',
    query: z.object(page),
    answer: list(withdrawal).extend({
      median_ms: milliseconds.nullable().meta({
        description:
          'Median time from request to payment over the latest withdrawals of all accounts; null if there are none',
      }),
      median_of: count.meta({ description: 'Number of withdrawals in the median' }),
    }),
  }),
  listAdjustments: contract({
    operation: 'listAdjustments',
    method: 'GET',
    path: '/api/adjustments',
    summary: 'List refunds and adjustments, newest first: by the operator, or because a retry replaced the request',
    access: 'session',
    role: 'viewer',
    scope: 'usage:read',
    query: z.object(page),
    answer: list(adjustment),
  }),
  createWithdrawal: contract({
    operation: 'createWithdrawal',
    method: 'POST',
    path: '/api/withdrawals',
    summary: 'Withdraw to the registered owner address; needs a recent sign-in',
    access: 'session',
    role: 'owner',
    headers: idempotencyKey,
    body: z.strictObject({ amount, recipient: address }),
    status: 202,
    answer: withdrawal,
  }),
  createWalletRefund: contract({
    operation: 'createWalletRefund',
    method: 'POST',
    path: '/api/refunds',
    summary:
      'Pay unused credit of a wallet account back to its wallet, as `POST /x402/v1/refund` does; needs a recent sign-in',
    access: 'session',
    role: 'owner',
    headers: idempotencyKey,
    body: z.strictObject({ amount: amount.optional().meta({ description: 'Absent: all unused credit' }) }),
    status: 202,
    answer: withdrawal,
  }),
  setOwner: contract({
    operation: 'setOwner',
    method: 'PUT',
    path: '/api/owner',
    summary:
      'Register the owner address, which receives withdrawals; needs a recent sign-in. The first address takes effect immediately if the account has no money or with a proof, a changed one after a waiting period',
    access: 'session',
    role: 'owner',
    body: z.strictObject({ address, proof: confirmation.optional() }),
    answer: account,
  }),
  createOwnerChallenge: contract({
    operation: 'createOwnerChallenge',
    method: 'POST',
    path: '/api/owner/challenge',
    summary:
      'Get the challenge that a passkey or wallet of the account signs to confirm an owner address. Works once, within five minutes',
    access: 'session',
    role: 'owner',
    body: z.strictObject({ address, wallet: signingWallet }),
    answer: challenge,
  }),
  getStatement: contract({
    operation: 'getStatement',
    method: 'GET',
    path: '/api/statement',
    summary: 'Get a monthly statement: opening balance, movements and closing balance',
    access: 'session',
    role: 'viewer',
    scope: 'usage:read',
    isHeavy: true,
    query: z.object({
      month: month.optional(),
      format: z.enum(['json', 'csv']).optional(),
      by: z.enum(['key']).optional().meta({ description: 'In the CSV: charges by key instead of the lines' }),
    }),
    answer: statement,
    alsoAs: ['text/csv'],
  }),
  requestTestMoney: contract({
    operation: 'requestTestMoney',
    method: 'POST',
    path: '/api/faucet',
    summary:
      'Send test USDC to the deposit address, to the wallet of a wallet account, or to a given wallet (sandbox only)',
    access: 'sandbox',
    role: 'developer',
    body: z.strictObject({ wallet: address.optional() }),
    status: 202,
    answer: z.object({ object: z.literal('faucet'), ...money('amount'), tx_hash: hash.nullable() }),
  }),
  mineBlocks: contract({
    operation: 'mineBlocks',
    method: 'POST',
    path: '/api/sandbox/mine',
    summary: 'Advance the sandbox chain',
    access: 'sandbox',
    role: 'developer',
    body: z.strictObject({ blocks: z.int().min(1).max(1000).default(10) }),
    answer: z.object({ object: z.literal('sandbox'), block: z.string().nullable() }),
  }),
  failNextCall: contract({
    operation: 'failNextCall',
    method: 'POST',
    path: '/api/sandbox/fail-next',
    summary: 'Make the next call of the sandbox model fail',
    access: 'sandbox',
    role: 'developer',
    answer: z.object({ object: z.literal('sandbox') }),
  }),
  slowModel: contract({
    operation: 'slowModel',
    method: 'POST',
    path: '/api/sandbox/slow',
    summary: 'Delay the next call of the sandbox model',
    access: 'sandbox',
    role: 'developer',
    body: z.strictObject({ milliseconds: z.int().min(0).max(60_000).default(3_000) }),
    answer: z.object({ object: z.literal('sandbox') }),
  }),
  resetSandbox: contract({
    operation: 'resetSandbox',
    method: 'POST',
    path: '/api/sandbox/reset',
    summary: 'Start over with an empty account and new test USDC. The previous account stays in the ledger',
    access: 'sandbox',
    role: 'owner',
    answer: session,
  }),
  getReceipt: contract({
    operation: 'getReceipt',
    method: 'GET',
    path: '/api/receipts/{id}',
    summary: 'Get the receipt of an ended request. Anyone can verify it; it contains no prompt',
    access: 'public',
    parameters: z.object({ id: requestId }),
    refusedWith: [410],
    answer: receipt,
  }),
  exportReceipts: contract({
    operation: 'exportReceipts',
    method: 'GET',
    path: '/api/receipts',
    summary: 'Export all receipts of the account as one file for `penny verify`: each payment, then its entries',
    access: 'key or session',
    role: 'viewer',
    scope: 'usage:read',
    isHeavy: true,
    // An account without an address has no receipts.
    refusedWith: [404],
    linesAs: 'application/x-ndjson',
    answer: receiptsLine,
  }),
  getLiabilityProof: contract({
    operation: 'getLiabilityProof',
    method: 'GET',
    path: '/api/liabilities/proof',
    summary: 'Prove that the balance of the account is part of the sum that the service says it owes',
    access: 'key or session',
    role: 'viewer',
    scope: 'usage:read',
    isHeavy: true,
    query: snapshotQuery,
    refusedWith: [404],
    answer: liabilityProof,
  }),
  getSolvency: contract({
    operation: 'getSolvency',
    method: 'GET',
    path: '/api/solvency',
    summary: 'Check that the chain holds what the ledger owes',
    access: 'public',
    answer: z
      .object({
        ok: z.boolean().meta({ description: 'Also false before the first check, when checked_at is null' }),
        checked_at: instant.nullable(),
        block: z.string().nullable(),
        ...solvencySums,
        liabilities: snapshot.optional().meta({
          description:
            'The latest signed snapshot of what is owed. Absent before the first. Each customer can prove that their balance is part of it',
        }),
      })
      .meta({ id: 'Solvency' }),
  }),
} as const
