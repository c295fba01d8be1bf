-- The gateway's ledger: the chain and its balances, the transactions of the relayer, the accepted payments and their batches, the
-- batches of other gateways, and withdrawals.
--
-- It has two sources: messages that payers signed and the gateway accepted (transfers, burn_intents), and events on the chain (events,
-- balances). If they differ, the chain is right.
--
-- Addresses and hashes are lower-case hex with 0x. Amounts are atomic USDC (6 decimals); gas is paid in wei of the native coin,
-- which is USDC with 18 decimals.

-- ── The chain ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

create table chain (
  singleton        boolean     primary key default true check (singleton),
  chain_id         bigint      not null,
  gateway_wallet   text        not null,
  usdc             text        not null,
  first_block      bigint      not null,
  processed_height bigint      not null,
  rechecked_height bigint      not null,
  agreed_height    bigint      not null,
  at_head_since    timestamptz not null default '-infinity',
  last_batch_id    bigint      not null default 0,
  stray            bigint      not null default 0,
  feed             uuid        not null default gen_random_uuid()
);
comment on table chain is 'The chain and contract that this database belongs to, and how far it has been read. One row. A gateway for another contract does not start on it.';
comment on column chain.first_block is 'The block of the contract''s deployment, or an earlier one.';
comment on column chain.processed_height is 'All events up to this block have been applied, and none above it.';
comment on column chain.rechecked_height is 'All blocks up to this one were read a second time, after any lagging node behind the RPC address must have caught up.';
comment on column chain.agreed_height is 'The last block at which the sum of all balances plus `stray` equalled the USDC of the contract.';
comment on column chain.at_head_since is 'When the processed height was last the finalized head. Payments are refused when this is too long ago.';
comment on column chain.last_batch_id is 'The contract''s number of the last settled batch. Batches are numbered without gaps, so a gap means missing logs.';
comment on column chain.stray is 'USDC that was sent to the contract without a deposit and belongs to no depositor.';
comment on column chain.feed is 'Names this database in cursors of transfers.change, so that a cursor of another database is refused.';

create table events (
  block            bigint      not null,
  log_index        integer     not null,
  block_hash       text        not null,
  transaction_hash text        not null,
  kind             text        not null,
  account          text,
  value            bigint,
  block_time       timestamptz,
  spec_hash        text,
  primary key (block, log_index)
);
comment on table events is 'The contract''s logs that move balances. The primary key makes sure that each log is applied once.';
comment on column events.block_time is 'Set for deposits only: the API lists them with their time.';
comment on column events.spec_hash is 'Set for instant withdrawals: the burn intent that was paid. After the database is lost, the same intent may be submitted again and must not be paid again.';
create index events_deposits on events (account, block desc, log_index desc) where kind = 'Deposited';
create index events_of_intent on events (spec_hash) where spec_hash is not null;

create table balances (
  depositor        text   primary key,
  available        bigint not null default 0,
  withdrawing      bigint not null default 0,
  withdrawal_block bigint not null default 0,
  pending          bigint not null default 0 check (pending >= 0),
  doubtful         bigint not null default 0 check (doubtful >= 0),
  changed_height   bigint not null default 0,
  checked_height   bigint not null default 0
);
comment on table balances is 'The contract''s balances as of chain.processed_height. A depositor can spend available − pending − doubtful.';
comment on column balances.withdrawing is 'Amount that the depositor withdraws directly from the contract, without the gateway. Possible from `withdrawal_block` on.';
comment on column balances.pending is 'Sum of accepted transfers and burn intents that have not settled yet.';
comment on column balances.doubtful is 'Amount by which this ledger exceeds the contract''s view. Not spendable until both agree.';
comment on column balances.changed_height is 'The block of the last event of this depositor.';
comment on column balances.checked_height is 'The last block at which the contract''s view agreed with this row.';

-- ── Transactions of the relayer ────────────────────────────────────────────────────────────────────────────────────────────

create table calls (
  id         bigint      generated always as identity primary key,
  kind       text        not null check (kind in ('batch', 'withdrawal')),
  data       text        not null,
  state      text        not null default 'sent' check (state in ('sent', 'succeeded', 'reverted', 'superseded')),
  block      bigint,
  hash       text,
  gas_used   bigint,
  gas_cost   numeric(78),
  created_at timestamptz not null default clock_timestamp()
);
comment on table calls is 'Contract calls that must be executed exactly once. One is in progress at a time; its calldata is fixed before it is first sent.';
comment on column calls.data is 'Calldata; emptied after success to save space.';
comment on column calls.state is 'superseded: another transaction used the nonce, so the call was never executed.';
comment on column calls.hash is 'Hash of the transaction that was included in the chain.';
comment on column calls.gas_cost is 'In wei.';
create unique index calls_one_at_a_time on calls ((true)) where state = 'sent';

create table transactions (
  hash            text        primary key,
  call            bigint      not null references calls,
  relayer         text        not null,
  nonce           bigint      not null,
  raw             text        not null,
  max_fee_per_gas numeric(78) not null,
  created_at      timestamptz not null default clock_timestamp()
);
comment on table transactions is 'Signed versions of a call: each later one has a higher fee or a new relayer. Stored before it is sent to a node.';
comment on column transactions.raw is 'The signed bytes; emptied after success to save space.';
create index transactions_of_call on transactions (call);
create index transactions_of_relayer on transactions (relayer, nonce);

-- ── Payments ───────────────────────────────────────────────────────────────────────────────────────────────────────────────

create table batches (
  id             bigint  generated always as identity primary key,
  call           bigint  not null unique references calls,
  chain_batch_id bigint  not null,
  receipt_root   text    not null,
  row_count      integer not null check (row_count between 1 and 250),
  state          text    not null default 'sent' check (state in ('sent', 'settled', 'released')),
  settled_by     text,
  settled_count  integer,
  settled_value  bigint
);
comment on table batches is 'Batches of transfers. One call settles a batch.';
comment on column batches.chain_batch_id is 'The contract''s number of the batch. Two batches have the same number only when the first was never settled.';
comment on column batches.receipt_root is 'Merkle root of the receipt hashes of its rows, in the order of batch_rows. The contract''s event contains it.';
comment on column batches.state is 'released: the batch was never settled, and its transfers wait for another one.';
comment on column batches.settled_by is 'Hash of the transaction that settled it. It may be an older version of the call.';
-- Not unique while sent: an abandoned batch may still be included before its successor with the same number.
create unique index batches_numbered_once on batches (chain_batch_id) where state = 'settled';

create table foreign_batches (
  chain_batch_id   bigint      primary key,
  transaction_hash text        not null,
  is_read          boolean     not null default false,
  asked_at         timestamptz not null default '-infinity'
);
comment on table foreign_batches is 'Batches on chain that this database does not know: sent by another gateway on the same contract, or by this one before its database was lost. The log has payer and nonce; payee and amount are read from the transaction.';
comment on column foreign_batches.asked_at is 'When the transaction was last requested from the node.';
create index foreign_batches_unread on foreign_batches (asked_at, chain_batch_id desc) where not is_read;

create table transfers (
  id            uuid        primary key,
  sequence      bigint      generated always as identity unique,
  payer         text        not null,
  payee         text        not null check (payee <> payer),
  value         bigint      not null check (value > 0),
  valid_after   numeric(78) not null,
  valid_before  numeric(78) not null,
  nonce         text        not null,
  signature     text        not null,
  receipt_hash  text,
  status        text        not null default 'received' check (status in ('received', 'batched', 'confirmed', 'completed', 'failed')),
  failure       text,
  batch         bigint      references batches,
  foreign_batch bigint      references foreign_batches,
  skips         integer     not null default 0,
  retry_at      timestamptz not null default '-infinity',
  created_at    timestamptz not null default clock_timestamp(),
  updated_at    timestamptz not null default clock_timestamp(),
  change        bigint,
  constraint transfers_once unique (payer, nonce),
  constraint transfers_in_batch check (status not in ('batched', 'confirmed') or batch is not null),
  constraint transfers_failure check ((status = 'failed') = (failure is not null))
);
comment on table transfers is 'Accepted payments. Rows are never deleted.';
comment on constraint transfers_once on transfers is 'A payment is accepted once.';
comment on column transfers.sequence is 'Order of acceptance, and the order in which transfers are batched.';
comment on column transfers.receipt_hash is 'Hash of the receipt that the payment covers. The batch proves it on chain.';
comment on column transfers.status is 'received: the value is reserved. batched: in a transaction. confirmed: in a block that is not final. completed: final.';
comment on column transfers.foreign_batch is 'Set when a foreign batch settled it.';
comment on column transfers.skips is 'How often the contract skipped it for a transient reason, such as a low balance.';
comment on column transfers.retry_at is 'Not batched again before this time.';
comment on column transfers.change is 'Number of its last change after acceptance, in the order of commits; null before the first. Clients read changes with a cursor.';
create index transfers_waiting on transfers (sequence) where status = 'received';
create index transfers_of_payer on transfers (payer, sequence);
create index transfers_of_payee on transfers (payee, sequence);
create index transfers_of_batch on transfers (batch) where status in ('batched', 'confirmed');

create index transfers_changed on transfers (change) where change is not null;

-- A cursor over `change` must never pass a number that is committed later. So a transaction takes its numbers under a lock that it
-- holds until the commit. Acceptance takes no number, so payments never wait for this lock. Later changes are made only by the worker;
-- two workers run concurrently only during a takeover.
create sequence transfer_changes;

create function number_transfer_change() returns trigger language plpgsql set search_path from current as $$
begin
  perform pg_advisory_xact_lock(tg_relid::bigint);
  if tg_level = 'STATEMENT' then
    return null;
  end if;
  new.change := nextval('transfer_changes');
  return new;
end
$$;
comment on function number_transfer_change() is 'Assigns the next number to a changed transfer, in the order of commits.';

-- Takes the lock before the statement locks rows. Otherwise two workers could deadlock.
create trigger transfers_lock before update of status, batch, foreign_batch on transfers
  for each statement execute function number_transfer_change();
create trigger transfers_number before update of status, batch, foreign_batch on transfers for each row
  when ((old.status, old.batch, old.foreign_batch) is distinct from (new.status, new.batch, new.foreign_batch))
  execute function number_transfer_change();
-- Payments that another gateway settled are stored as completed.
create trigger transfers_number_adopted before insert on transfers for each row
  when (new.status <> 'received') execute function number_transfer_change();

create table batch_rows (
  batch        bigint  not null references batches,
  position     integer not null,
  transfer     uuid    not null references transfers,
  receipt_hash text,
  primary key (batch, position)
);
comment on table batch_rows is 'Rows of each batch as sent. Never changed: receipt proofs are computed from them.';

create table foreign_authorizations (
  payer text   not null,
  nonce text   not null,
  batch bigint references foreign_batches,
  primary key (payer, nonce)
);
comment on table foreign_authorizations is 'Payments that settled in a foreign batch that has not been read yet. They become transfers when it is read.';
create index foreign_authorizations_of_batch on foreign_authorizations (batch);

-- ── Withdrawals ────────────────────────────────────────────────────────────────────────────────────────────────────────────

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
  turn             bigint      not null default 0,
  retry_at         timestamptz not null default '-infinity',
  refusals         integer     not null default 0,
  refused_since    timestamptz,
  reverts          integer     not null default 0,
  created_at       timestamptz not null default clock_timestamp(),
  unique (withdrawal, position)
);
comment on table burn_intents is 'Signed burn intents, each for one payout to a depositor. The intents of one HTTP request share a withdrawal id.';
comment on column burn_intents.data is 'Calldata of the payout.';
comment on column burn_intents.turn is 'Depositors take turns: intents are sent in the order of turn, and each waiting intent of a depositor has a later turn than the one before it.';
comment on column burn_intents.refusals is 'Number of consecutive simulations in which the contract refused the intent, for the reason in `failure`.';
comment on column burn_intents.reverts is 'How often its transaction was included and reverted. Each time costs gas, so the number is limited.';
create index burn_intents_waiting on burn_intents (turn, created_at) where state = 'pending';
create index burn_intents_of_depositor on burn_intents (depositor, created_at);
create index burn_intents_of_call on burn_intents (call) where state in ('sent', 'confirmed');
