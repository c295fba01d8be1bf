-- What the gateway knows. Two truths meet here: what payers signed and were promised (transfers, burn intents), and what
-- the chain says happened (events, balances). Addresses and hashes are lower-case hex; amounts are atomic USDC.

-- One gateway, one chain, one contract. A database that has seen another is refused.
create table chain (
  singleton        boolean     primary key default true check (singleton),
  chain_id         bigint      not null,
  gateway_wallet   text        not null,
  usdc             text        not null,
  first_block      bigint      not null,
  -- Every event up to this block has been applied; nothing above it has.
  processed_height bigint      not null,
  -- Every block is asked for twice, the second time when no node can be behind any more: so far this has been done.
  rechecked_height bigint      not null,
  last_batch_id    bigint      not null default 0,
  -- USDC that the contract holds for nobody, sent to it without a deposit; and when this last explained all that it holds.
  stray            bigint      not null default 0,
  agreed_height    bigint      not null,
  -- When the processed height was last known to be the chain's finalized head.
  at_head_since    timestamptz not null default '-infinity'
);

-- The contract's balances as of the processed height, and what is promised out of them but not settled yet.
create table balances (
  depositor        text   primary key,
  available        bigint not null default 0,
  withdrawing      bigint not null default 0,
  withdrawal_block bigint not null default 0,
  pending          bigint not null default 0 check (pending >= 0),
  -- What the log gives beyond the contract's own view, which nobody may spend until the two agree.
  doubtful         bigint not null default 0 check (doubtful >= 0),
  changed_height   bigint not null default 0,
  -- When the contract's own view last agreed with this row.
  checked_height   bigint not null default 0
);

-- The log of the contract, as far as it moves balances. A log is applied once, by its place in the chain.
create table events (
  block            bigint not null,
  log_index        integer not null,
  block_hash       text   not null,
  transaction_hash text   not null,
  kind             text   not null,
  account          text,
  value            bigint,
  -- Of deposits, which are shown with their time.
  block_time       timestamptz,
  primary key (block, log_index)
);
create index events_deposits on events (account, block desc, log_index desc) where kind = 'Deposited';

-- What the relayer does on chain, one thing at a time: the data of a call is fixed before it is first sent.
create table calls (
  id         bigint generated always as identity primary key,
  kind       text        not null check (kind in ('batch', 'withdrawal')),
  data       text        not null,
  state      text        not null default 'sent' check (state in ('sent', 'succeeded', 'reverted', 'superseded')),
  block      bigint,
  hash       text,
  gas_used   bigint,
  -- In wei of the native coin, which is USDC with 18 decimals.
  gas_cost   numeric(78),
  created_at timestamptz not null default clock_timestamp()
);
create unique index calls_one_at_a_time on calls ((true)) where state = 'sent';

-- A call may be signed more than once: with a higher fee, or by a new relayer. Each version is here before a node sees it.
create table transactions (
  hash            text        primary key,
  call            bigint      not null references calls,
  relayer         text        not null,
  nonce           bigint      not null,
  raw             text        not null,
  max_fee_per_gas numeric(78) not null,
  created_at      timestamptz not null default clock_timestamp()
);
create index transactions_of_call on transactions (call);
create index transactions_of_relayer on transactions (relayer, nonce);

create table batches (
  id             bigint generated always as identity primary key,
  call           bigint not null unique references calls,
  -- The contract's number. Two batches share one only when the first never came into effect.
  chain_batch_id bigint not null,
  receipt_root   text   not null,
  row_count      integer not null check (row_count between 1 and 250),
  state          text   not null default 'sent' check (state in ('sent', 'settled', 'released')),
  settled_count  integer,
  settled_value  bigint
);
-- Not when it is sent: a batch that was given up may land after all, before its successor of the same number.
create unique index batches_numbered_once on batches (chain_batch_id) where state = 'settled';

create table transfers (
  id           uuid        primary key,
  sequence     bigint      generated always as identity unique,
  payer        text        not null,
  payee        text        not null check (payee <> payer),
  value        bigint      not null check (value > 0),
  valid_after  numeric(78) not null,
  valid_before numeric(78) not null,
  nonce        text        not null,
  signature    text        not null,
  receipt_hash text,
  status       text        not null default 'received' check (status in ('received', 'batched', 'confirmed', 'completed', 'failed')),
  failure      text,
  batch        bigint      references batches,
  -- How often the contract skipped it, and from when on it may be tried again.
  skips        integer     not null default 0,
  retry_at     timestamptz not null default '-infinity',
  created_at   timestamptz not null default clock_timestamp(),
  updated_at   timestamptz not null default clock_timestamp(),
  -- The promise that a payment is taken once.
  constraint transfers_once unique (payer, nonce),
  constraint transfers_in_batch check (status not in ('batched', 'confirmed') or batch is not null),
  constraint transfers_failure check ((status = 'failed') = (failure is not null))
);
create index transfers_waiting on transfers (sequence) where status = 'received';
create index transfers_of_payer on transfers (payer, sequence);
create index transfers_of_payee on transfers (payee, sequence);
create index transfers_of_batch on transfers (batch) where status in ('batched', 'confirmed');

-- The rows of each batch as they were sent, for good: the receipt root is made of them.
create table batch_rows (
  batch        bigint  not null references batches,
  position     integer not null,
  transfer     uuid    not null references transfers,
  receipt_hash text,
  primary key (batch, position)
);

-- Authorizations that settled without having passed through here: another gateway on the same contract.
create table foreign_authorizations (
  payer text not null,
  nonce text not null,
  primary key (payer, nonce)
);

-- Orders to pay out at once. Those of one request share a withdrawal.
create table burn_intents (
  spec_hash        text        primary key,
  withdrawal       uuid        not null,
  position         integer     not null,
  depositor        text        not null,
  recipient        text        not null,
  value            bigint      not null check (value > 0),
  max_block_height numeric(78) not null,
  data             text        not null,
  state            text        not null default 'pending' check (state in ('pending', 'sent', 'confirmed', 'finalized', 'failed', 'expired')),
  failure          text,
  call             bigint      references calls,
  retry_at         timestamptz not null default '-infinity',
  created_at       timestamptz not null default clock_timestamp(),
  unique (withdrawal, position)
);
create index burn_intents_waiting on burn_intents (created_at) where state = 'pending';
create index burn_intents_of_call on burn_intents (call) where state in ('sent', 'confirmed');
