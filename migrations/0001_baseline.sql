-- The ledger of Penny Router and the tables around it, in the order of a customer's money: an account is opened, a deposit arrives,
-- a request holds part of it and ends, the charges are paid on chain, and the rest can be withdrawn.
--
-- All amounts are atomic USDC (6 decimals). The functions that move money are in `functions/`, one file each.
--
-- Every table of the ledger has `partition` as its first column and in its primary key. Every function that reads or writes an account's
-- rows takes it as its first argument and touches only that partition. One PostgreSQL serves all partitions; Citus spreads them over several (docs/scaling.md). Without a
-- partition (null) the functions of requests take a batch over all partitions, which one PostgreSQL runs at the cost of one: accounts,
-- keys and holds are found by their ids alone, so their primary keys begin with the id.
--
-- Locking: every write to an account, its keys, holds or payments locks the account's row first (`lock_accounts`).
-- One statement locks, the next one reads the balances. In one statement the snapshot would be older than the lock, and requests could
-- exceed limits.
--
-- Checks that belong together are one constraint: PostgreSQL parses every check of a table again for each statement that writes
-- to it, which was a third of the cost of a small batch. least() ignores nulls.

----------------------------------------------------------------------------------------------------------------------------
-- The service
----------------------------------------------------------------------------------------------------------------------------

create table ledger_state (
  single             boolean     primary key default true check (single),
  frozen_at          timestamptz,
  reason             text,
  unsettled_cap      bigint      not null default 5000000 check (unsettled_cap > 0),
  withdrawal_fee_max bigint      not null default 0 check (withdrawal_fee_max >= 0),
  settlement_epoch   integer     check (settlement_epoch >= 0),
  settle_after_ms    bigint,
  settle_latest_ms   bigint,
  settle_min         bigint,
  closed_before      uuid        not null default '00000000-0000-0000-0000-000000000000'
);
insert into ledger_state default values;
comment on table  ledger_state is 'One row. When an audit finds a violation, the ledger is frozen: open requests can end, no new one is accepted.';
comment on column ledger_state.unsettled_cap is 'Maximum of the charges of one account that are not yet paid on chain. Written when a service starts.';
comment on column ledger_state.withdrawal_fee_max is 'Maximum fee that the gateway takes from a withdrawal requested now.';
comment on column ledger_state.settlement_epoch is 'Part of every payment''s nonce. Null before settlement first ran; never lowered.';
comment on column ledger_state.settle_after_ms is 'Age at which the unpaid charges of an account are due if they have reached settle_min. Null before settlement first ran.';
comment on column ledger_state.settle_latest_ms is 'Age at which unpaid charges below settle_min are due.';
comment on column ledger_state.settle_min is 'Atomic USDC. Unpaid charges of this amount or more are due after settle_after_ms, smaller ones after settle_latest_ms.';
comment on column ledger_state.closed_before is 'Requests with a lower id are not accepted: their month is closed and will be sealed.';

create table emergency_freeze (
  single    boolean     primary key default true check (single),
  frozen_at timestamptz not null,
  reason    text        not null
);
comment on table emergency_freeze is 'A freeze that could not be written to ledger_state, because a worker of the cluster was down. Nodes read it when they renew their lease. While it has a row, no node can place holds.';

create table nodes (
  id          uuid        primary key,
  started_at  timestamptz not null default clock_timestamp(),
  lease_until timestamptz not null
);
comment on table nodes is 'A node is responsible for its holds while it renews its lease, by the clock of the database. A hold is orphaned when the lease of its node has expired, never because of its age: answers may take long.';

create table prices (
  version            text   not null,
  model              text   not null,
  input_per_million  bigint not null check (input_per_million > 0),
  output_per_million bigint not null check (output_per_million > 0),
  search_per_call    bigint not null check (search_per_call >= 0),
  primary key (version, model)
);
comment on table prices is 'Price lists. Rows are never changed: a charge uses the version that its hold names.';

create table reasoning_samples (
  provider text     not null,
  model    text     not null,
  effort   text     not null,
  basis    text     not null,
  samples  float8[] not null check (cardinality(samples) between 1 and 64),
  primary key (provider, model, effort, basis)
);
comment on table  reasoning_samples is 'How much providers reason without showing it, learned from whole answers: the newest samples, oldest first. Answers that are cut off are billed by it.';
comment on column reasoning_samples.basis is 'sealed: tokens per byte of encrypted reasoning. A number: tokens of answers whose provider was silent for this many seconds, to twice as many, before its first output. reasoned- and a number: tokens of answers of a provider that encrypts, which began their text after this many.';

----------------------------------------------------------------------------------------------------------------------------
-- Accounts and their API keys
----------------------------------------------------------------------------------------------------------------------------

create table accounts (
  partition         smallint    not null,
  id                uuid        not null,
  name              text        not null,
  created_at        timestamptz not null default clock_timestamp(),
  -- Balances.
  gateway           bigint      not null default 0,
  credit            bigint      not null default 0,
  held              bigint      not null default 0,
  extended          bigint      not null default 0,
  -- Running totals over the account's life: an audit does not have to read its history.
  deposited         bigint      not null default 0,
  withdrawn         bigint      not null default 0,
  charged           bigint      not null default 0,
  given_back        bigint      not null default 0,
  paid              bigint      not null default 0,
  -- The numbered entries, and how far payments cover them.
  entries           bigint      not null default 0,
  covered_entry     bigint      not null default 0,
  covered           bigint      not null default 0,
  payments          bigint      not null default 0,
  transfers         bigint      not null default 0,
  lost              bigint      not null default 0,
  unpaid_since      timestamptz,
  pay_to            bigint      not null default 0,
  -- Its events, and the types that an endpoint or a live view reads.
  events            bigint      not null default 0,
  event_types       text[],
  watched_from      bigint      not null default 0,
  watched_until     timestamptz,
  -- Its addresses, its owner, and whether it is suspended or closed.
  address           text,
  address_wanted_at timestamptz,
  owner_address     text,
  owner_usable_from timestamptz,
  wallet            text,
  suspended_at      timestamptz,
  suspended_reason  text,
  closed_at         timestamptz,
  -- Its allowance of cancels that are not charged.
  spared            bigint      not null default 0,
  spared_since      timestamptz,
  primary key (id, partition),
  constraint accounts_name check (length(name) between 1 and 200),
  constraint accounts_not_negative check (least(gateway, held, extended, given_back, spared, lost) >= 0 and given_back <= charged),
  constraint accounts_not_overspent check (gateway + credit - extended >= 0),
  constraint accounts_entries_covered check (covered_entry <= entries),
  constraint accounts_addresses check (address ~ '^0x[0-9a-f]{40}$' and owner_address ~ '^0x[0-9a-f]{40}$' and wallet ~ '^0x[0-9a-f]{40}$'
    and (wallet is null or (gateway = 0 and address is null))),
  constraint accounts_suspended_for_a_reason check ((suspended_at is null) = (suspended_reason is null) and length(suspended_reason) <= 500)
) with (fillfactor = 50);
-- Partial, so that the planner uses them for no other query: a batch finds its accounts by the primary key.
create unique index accounts_by_address on accounts (address, partition) where address is not null;
create index accounts_without_address on accounts (partition, id)
  where address is null and wallet is null and (address_wanted_at is not null or deposited > 0);
create index accounts_unpaid on accounts (unpaid_since) where unpaid_since is not null;
create index accounts_to_pay on accounts (partition, id) where pay_to > covered_entry;
-- Both are empty unless an account has a webhook endpoint or an open live view. Holds and ends check them before they write events.
create index accounts_listening on accounts (id, partition) where event_types is not null or watched_until is not null;
create index accounts_watched on accounts (id, partition) where watched_until is not null;
-- For the operator's pages.
create index accounts_newest on accounts (created_at desc, id desc);
create index accounts_by_name on accounts (lower(name) text_pattern_ops);
create index accounts_by_owner on accounts (owner_address) where owner_address is not null;
create index accounts_of_wallets on accounts (created_at desc, id desc) where wallet is not null;
create index accounts_suspended on accounts (suspended_at) where suspended_at is not null;
comment on table  accounts is 'deposited = gateway + credit + held + charged - given_back + withdrawn. On chain the account has gateway + credit + held + (charged - given_back - paid).';
comment on column accounts.gateway is 'Deposited and not yet reserved by any request.';
comment on column accounts.credit is 'Unused part of earlier holds. The next hold spends it first. Negative: a debt.';
comment on column accounts.held is 'Sum of the quotes of open requests.';
comment on column accounts.extended is 'Sum of the extensions of open requests: what they may cost beyond their quotes.';
comment on column accounts.given_back is 'Charges that were refunded as credit, less reversals: the sum of the adjustments of kind adjustment and refund.';
comment on column accounts.paid is 'Net value of the payments that are final on chain.';
comment on column accounts.entries is 'Number of the last entry. Each ended request and each adjustment is one entry.';
comment on column accounts.covered_entry is 'Last entry that a payment covers. Includes the payment under way.';
comment on column accounts.covered is 'Net value of the payments up to covered_entry.';
comment on column accounts.payments is 'Number of the last payment: the sequence in the nonce of its authorization.';
comment on column accounts.transfers is 'Wallet accounts: credited payments, and refunds that have not failed. Each costs the relayer gas.';
comment on column accounts.lost is 'Wallet accounts: what was spent of payments that failed after they were credited. It is the seller''s loss.';
comment on column accounts.unpaid_since is 'Time of the oldest entry that no payment covers. Null while these entries include no charge.';
comment on column accounts.pay_to is 'Entries up to this one are paid even if their sum is 0 or less, because their month will be sealed.';
comment on column accounts.events is 'Number of the last event.';
comment on column accounts.event_types is 'Event types that an enabled webhook endpoint subscribes to. Null: none. Other types are written only while the account is watched.';
comment on column accounts.watched_from is 'Number of the event from which every event of the account has been written. Valid while watched_until is in the future.';
comment on column accounts.watched_until is 'While in the future, a live view of the account is open and every event is written. Each node that serves a view renews it; a job clears it after it has passed.';
comment on column accounts.address is 'Custodial address: receives deposits and pays on chain.';
comment on column accounts.address_wanted_at is 'When a process without access to the signer requested the address; settlement assigns it. Not assigned at sign-up: sign-ups are free, and each address is watched on the chain forever.';
comment on column accounts.owner_address is 'Withdrawals go to this address, from owner_usable_from on.';
comment on column accounts.wallet is 'Set for a wallet account: it pays each request in advance over x402, from this address directly to the seller. It has no custodial address and no balance at the gateway under our keys. Its payments transfer nothing; they only sign receipts. paid and covered count the advance payments, less refunds.';
comment on column accounts.spared is 'List price of the cancels before output that were not charged in the hour from spared_since on, counted over all processes. spare_cancels bounds it.';
comment on column accounts.suspended_at is 'Set by an operator: new requests are not accepted. Open requests end normally, and the balance can be withdrawn.';

create table api_keys (
  partition         smallint    not null,
  id                uuid        not null,
  account_id        uuid        not null,
  name              text        not null,
  hint              text        not null,
  created_at        timestamptz not null default clock_timestamp(),
  last_used_at      timestamptz,
  expires_at        timestamptz,
  revoked_at        timestamptz,
  disabled          boolean     not null default false,
  limit_amount      bigint,
  limit_window      text        not null default 'lifetime',
  window_start      timestamptz not null default '-infinity',
  window_changed_at timestamptz,
  spent             bigint      not null default 0,
  held              bigint      not null default 0,
  allowed_models    text[]      not null default '{}',
  max_request_cost  bigint,
  web_tools         boolean     not null default true,
  allowed_ips       text[]      not null default '{}',
  options_version   integer     not null default 0,
  refusals          integer     not null default 0,
  refusals_from     timestamptz,
  limit_reached_at  timestamptz,
  made_by           uuid,
  primary key (id, partition),
  foreign key (partition, account_id) references accounts (partition, id),
  constraint api_keys_name check (length(name) between 1 and 200),
  constraint api_keys_disabled_is_revoked check (not disabled or revoked_at is not null),
  constraint api_keys_limit_window check (limit_window = any ('{lifetime,day,week,month}')),
  constraint api_keys_amounts check (least(limit_amount, spent, held) >= 0 and coalesce(max_request_cost, 1) > 0)
) with (fillfactor = 50);
create index api_keys_of_account on api_keys (account_id);
comment on column api_keys.disabled is 'A disabled key is revoked but can be enabled again.';
comment on column api_keys.spent is 'Charges of requests that were created since window_start. No job resets it: a check in a later window reads 0, and a request of an earlier window does not change it when it ends.';
comment on column api_keys.held is 'Quotes and extensions of open requests that were created since window_start.';
comment on column api_keys.window_changed_at is 'When limit_window was last changed. It can be changed once a minute.';
comment on column api_keys.allowed_models is 'Models the key may use; empty: all.';
comment on column api_keys.max_request_cost is 'Maximum cost of one request, searches included. Null: no maximum for this key.';
comment on column api_keys.web_tools is 'False: web search and web fetch are never offered with this key.';
comment on column api_keys.allowed_ips is 'Addresses and CIDR blocks the key may be used from; empty: all.';
comment on column api_keys.options_version is 'Increases with every change of the options above and with every new secret. A hold names the version that its request was checked against.';
comment on column api_keys.limit_reached_at is 'When the event key.limit_reached was written. It is written once per window; changing the limit allows the next one.';
comment on column api_keys.made_by is 'The person who created the key. Members below admin see and change only their own keys. Null: created by a command or a management key.';
comment on column api_keys.refusals is 'Refusals of the minute that begins at refusals_from.';

create table api_key_hashes (
  hash       bytea       primary key check (length(hash) = 32),
  partition  smallint    not null,
  account_id uuid        not null,
  key_id     uuid        not null,
  hint       text,
  known_to   uuid,
  expires_at timestamptz
);
create index api_key_hashes_of_key on api_key_hashes (key_id);
comment on table api_key_hashes is 'SHA-256 of the secrets. Looked up before the partition is known, so the table is not partitioned. A rotated key has two rows until the overlap ends.';
comment on column api_key_hashes.known_to is 'The person who received the secret. The secret ends when this person leaves the account or may no longer change the key. Null: a command or a management key received it.';

----------------------------------------------------------------------------------------------------------------------------
-- Requests: held, ended, refused
----------------------------------------------------------------------------------------------------------------------------

create table holds (
  partition         smallint    not null,
  id                uuid        not null,
  account_id        uuid        not null,
  key_id            uuid        not null,
  node              uuid        not null,
  model             text        not null,
  stream            boolean     not null,
  max_tokens        integer     not null,
  price_version     text        not null,
  body_hash         bigint,
  created_at        timestamptz not null,
  key_window        timestamptz not null,
  quote             bigint      not null,
  from_credit       bigint      not null,
  authorized        bigint      not null,
  extended          bigint      not null default 0,
  prompt_tokens     integer,
  completion_tokens integer,
  tool_calls        jsonb,
  primary key (id, partition),
  constraint holds_are_whole check (quote = from_credit + authorized and least(quote, authorized, extended) >= 0)
) with (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000);
create index holds_of_account on holds (account_id, id);
comment on table  holds is 'Open requests. A row is inserted with the hold and deleted when the request ends. No foreign keys: place_holds reads account and key under the lock of the account, and neither is ever deleted.';
comment on column holds.body_hash is 'Set for requests that an SDK may retry without an Idempotency-Key. The retry finds the attempt by this hash.';
comment on column holds.key_window is 'The window of the key that the hold counts in.';
comment on column holds.authorized is 'Newly reserved from accounts.gateway; from_credit is the part that credit covered. A debt makes from_credit negative.';
comment on column holds.prompt_tokens is 'Last checkpoint of the stream. After a crash the request is charged up to it, or voided if there is none.';
comment on column holds.tool_calls is 'Calls of our tools by their number: {"1": {"kind", "status", "cost", "results"}}. Queries and addresses are not stored.';

create table requests (
  partition         smallint    not null,
  id                uuid        not null,
  account_id        uuid        not null,
  key_id            uuid        not null,
  node              uuid        not null,
  status            text        not null,
  model             text,
  stream            boolean     not null,
  max_tokens        integer,
  price_version     text,
  body_hash         bigint,
  created_at        timestamptz not null,
  ended_at          timestamptz not null,
  entry             bigint,
  quote             bigint      not null default 0,
  from_credit       bigint      not null default 0,
  authorized        bigint      not null default 0,
  extended          bigint      not null default 0,
  voided            boolean     not null default false,
  charged           bigint      not null default 0,
  search_cost       bigint      not null default 0,
  search_calls      smallint    not null default 0,
  fetch_calls       smallint    not null default 0,
  tool_calls        jsonb,
  prompt_tokens     integer,
  completion_tokens integer,
  reasoning_tokens  integer,
  cached_tokens     integer,
  usage_source      text,
  finish_reason     text,
  error_code        text,
  first_token_ms    integer,
  total_ms          integer,
  provider          text,
  attempts          smallint,
  upstream_cost     bigint,
  primary key (partition, id),
  constraint requests_status check (status = any ('{succeeded,failed,cancelled,refused}') and (status = 'refused') = (entry is null)),
  constraint requests_usage_source check (usage_source = any ('{upstream,counted}')),
  constraint requests_hold_is_whole check (quote = from_credit + authorized),
  constraint requests_charge check (search_cost <= charged and charged <= quote + extended and not (voided and charged > 0)),
  constraint requests_not_negative check (least(quote, authorized, extended, charged, search_cost) >= 0
    and least(prompt_tokens, completion_tokens, reasoning_tokens, cached_tokens) >= 0 and least(search_calls, fetch_calls, attempts) >= 0
    and upstream_cost >= 0)
) partition by range (id);
-- Each month has a partition of its own (`create_request_months`). Rows of other months are stored here, so that no row is lost.
create table requests_other partition of requests default;
-- Secondary indexes do not begin with the partition: a batch finds rows by (partition, id), and the planner must use the primary key
-- for that. The log is read backwards by id, which begins with the time. Partial indexes find rows that most accounts have few of.
create index requests_of_account on requests (account_id, id);
create index requests_of_key on requests (key_id, id);
create index requests_entries on requests (account_id, entry) where entry is not null;
create index requests_of_body on requests (account_id, body_hash, created_at desc) where body_hash is not null;
create index requests_not_succeeded on requests (account_id, id) include (status, error_code, key_id, model, created_at, quote, charged)
  where status <> 'succeeded';
create index requests_refused on requests (created_at) where status = 'refused';
create index requests_refused_of_key on requests (key_id, id) include (account_id, error_code, created_at) where status = 'refused';
create index requests_with_search on requests (account_id, id) where search_calls > 0;
comment on table  requests is 'Requests that ended or were refused. Append-only: rows are never changed. Refusals moved no money and are deleted after REFUSED_DAYS. Partitioned by month on the id, a UUIDv7 that begins with the time.';
comment on column requests.entry is 'Entry number in the account. Null for refused requests.';
comment on column requests.voided is 'The hold was released in full: the request failed before it produced output.';
comment on column requests.charged is 'The charge. Later refunds are in adjustments.';
comment on column requests.provider is 'The last provider that the request was sent to. For the operator; never shown to customers. Null when it was sent to none, or when the node died.';
comment on column requests.attempts is 'Requests sent to providers, over all rounds. Null when the node died.';
comment on column requests.upstream_cost is 'What the providers charge for the request, at the costs in PROVIDERS_FILE. Null: unknown.';

create view request_log as
  select r.partition, r.id, r.account_id, r.key_id, r.node, r.status, r.model, r.stream, r.max_tokens, r.price_version, r.body_hash,
         r.created_at, r.ended_at, r.entry, r.quote, r.from_credit, r.authorized, r.extended, r.voided, r.charged,
         r.search_cost, r.search_calls, r.fetch_calls, r.tool_calls, r.prompt_tokens, r.completion_tokens,
         r.reasoning_tokens, r.cached_tokens, r.usage_source, r.finish_reason, r.error_code, r.first_token_ms, r.total_ms
    from requests r
  union all
  select h.partition, h.id, h.account_id, h.key_id, h.node, 'held', h.model, h.stream, h.max_tokens, h.price_version, h.body_hash,
         h.created_at, null::timestamptz, null::bigint, h.quote, h.from_credit, h.authorized, h.extended, false, 0::bigint,
         0::bigint, 0::smallint, 0::smallint, h.tool_calls, null::integer, null::integer,
         null::integer, null::integer, null::text, null::text, null::text, null::integer, null::integer
    from holds h;
comment on view request_log is 'Open, ended and refused requests.';

create table adjustments (
  partition  smallint    not null,
  id         uuid        not null,
  account_id uuid        not null,
  entry      bigint      not null,
  kind       text        not null check (kind = any ('{adjustment,refund,recovery}')),
  amount     bigint      not null check (amount <> 0),
  request_id uuid,
  key_id     uuid,
  request_at timestamptz,
  reason     text        not null check (length(reason) between 1 and 500),
  made_by    text        not null check (length(made_by) between 1 and 200),
  created_at timestamptz not null default clock_timestamp(),
  primary key (partition, id),
  constraint adjustments_refund_of_key check ((kind = 'refund') = (key_id is not null) and (kind = 'refund') = (request_at is not null)),
  unique (partition, account_id, entry),
  foreign key (partition, account_id) references accounts (partition, id)
);
create index adjustments_of_account on adjustments (account_id, created_at);
create index adjustments_of_request on adjustments (request_id) where request_id is not null;
create index adjustments_by_age on adjustments using brin (created_at) with (pages_per_range = 16, autosummarize = on);
comment on table  adjustments is 'Entries that are not requests. Append-only.';
comment on column adjustments.kind is 'adjustment: an operator refunded a charge, or (amount < 0) reversed such a refund. refund: a retry replaced the request. recovery: charges that are missing in a restored ledger and known from their payment.';
comment on column adjustments.amount is 'Positive: credit to the account. Negative: a debit.';
comment on column adjustments.key_id is 'Refunds only: the key of the refunded request. Its spending is reduced by the amount.';
comment on column adjustments.request_at is 'Refunds only: when the refunded request was created, which determines the window of the key.';

create table usage_hours (
  partition         smallint    not null,
  account_id        uuid        not null,
  hour              timestamptz not null,
  key_id            uuid        not null,
  model             text        not null,
  succeeded         integer     not null default 0,
  failed            integer     not null default 0,
  cancelled         integer     not null default 0,
  refused           integer     not null default 0,
  quote             bigint      not null default 0,
  charged           bigint      not null default 0,
  search_cost       bigint      not null default 0,
  search_calls      bigint      not null default 0,
  fetch_calls       bigint      not null default 0,
  prompt_tokens     bigint      not null default 0,
  completion_tokens bigint      not null default 0,
  reasoning_tokens  bigint      not null default 0,
  cached_tokens     bigint      not null default 0,
  timed             integer     not null default 0,
  first_token_ms    bigint      not null default 0,
  total_ms          bigint      not null default 0,
  provider          text        not null default '',
  attempts          bigint      not null default 0,
  upstream_cost     bigint      not null default 0,
  costed            bigint      not null default 0,
  primary key (partition, account_id, hour, key_id, model, provider)
) with (fillfactor = 70);
-- For sums by day over all accounts. A block-range index is cheap to maintain: rows are inserted roughly in the order of time.
create index usage_hours_by_hour on usage_hours using brin (hour) with (pages_per_range = 16, autosummarize = on);
comment on table  usage_hours is 'Sums for charts, by the hour in which requests were created. Written by the transaction that ends the requests.';
comment on column usage_hours.charged is 'Sum of charges. Later refunds are in adjustments.';
comment on column usage_hours.provider is 'The last provider that the requests were sent to; empty when they were sent to none. For the operator.';
comment on column usage_hours.costed is 'Charges without searches of the requests whose upstream_cost is known. The margin is costed - upstream_cost.';
comment on column usage_hours.timed is 'Number of requests with a time to the first token.';

create table replays (
  partition  smallint    not null,
  account_id uuid        not null,
  key_hash   bytea       not null check (length(key_hash) = 32),
  body_hash  bytea       not null check (length(body_hash) = 32),
  key_id     uuid        not null,
  request_id uuid        not null,
  node       uuid        not null,
  earlier_id uuid,
  answer     text,
  is_keyed   boolean     not null,
  wanted_at  timestamptz,
  created_at timestamptz not null default clock_timestamp(),
  primary key (partition, account_id, key_hash)
);
create index replays_by_age on replays (is_keyed, created_at);
create index replays_wanted on replays (node) where wanted_at is not null;
comment on table  replays is 'Requests that a client may retry. A retry joins the running attempt or gets its answer, and is not charged. A row is claimed before the hold; the answer is stored at the end. Deleted after a day.';
comment on column replays.earlier_id is 'The attempt that this request replaces. Its charge is refunded when this request is delivered, up to the charge of this request.';
comment on column replays.answer is 'Null: not yet. Empty: there will be none.';
comment on column replays.is_keyed is 'True for an Idempotency-Key. False when the key was derived from API key and body of an SDK retry.';
comment on column replays.wanted_at is 'Last time a retry on another node asked for the answer.';

----------------------------------------------------------------------------------------------------------------------------
-- Payments: net charges, paid on chain
----------------------------------------------------------------------------------------------------------------------------

create table payments (
  partition      smallint    not null,
  account_id     uuid        not null,
  number         bigint      not null,
  first_entry    bigint      not null,
  last_entry     bigint      not null,
  value          bigint      not null,
  epoch          bigint      not null,
  state          text        not null,
  reason         text,
  previous_root  bytea,
  root           bytea,
  signature      bytea,
  gateway_id        text,
  batch          bigint,
  batch_position integer,
  batch_size     integer,
  batch_root     bytea,
  batch_proof    bytea,
  tx_hash        bytea,
  created_at     timestamptz not null,
  authorized_at  timestamptz not null,
  changed_at     timestamptz not null,
  primary key (partition, account_id, number),
  constraint payments_range check (first_entry <= last_entry and epoch >= 0),
  constraint payments_state check (state = any ('{submitted,received,batched,completed,failed,unknown}')),
  constraint payments_hashes check (length(previous_root) = 32 and length(root) = 32 and length(batch_root) = 32 and length(tx_hash) = 32
    and length(signature) = 65)
) with (fillfactor = 70);
create unique index payments_one_under_way on payments (partition, account_id) where state = any ('{submitted,received,batched,unknown}');
create index payments_covering on payments (account_id, first_entry);
create index payments_open on payments (changed_at) where state = any ('{submitted,received,batched,unknown}');
create index payments_failed on payments (changed_at) where state = 'failed';
create index payments_without_root on payments (account_id, number) where root is null;
create index payments_by_gateway_id on payments (gateway_id) where gateway_id is not null;
create index payments_of_transaction on payments (tx_hash) where tx_hash is not null;
comment on table  payments is 'One authorization for a range of entries. An account has at most one under way. After a failure, a later payment with a new number covers the range.';
comment on column payments.value is 'Sum of the entries: charges less refunds. Negative: the seller pays the account. A value of 0 and payments of wallet accounts, which paid in advance, need no transfer.';
comment on column payments.state is 'submitted: may have been sent to the gateway. received, batched, completed, failed: reported by the gateway. unknown: sent, and the answer was unclear.';
comment on column payments.previous_root is 'Root of the previous payment that did not fail: first leaf of the tree. Null for the first payment.';
comment on column payments.root is 'Root of the Merkle tree over the entries. Leaves and proofs are computed from the rows on demand.';
comment on column payments.signature is 'The issuer''s signature over range, value and root.';
comment on column payments.batch_proof is 'Hashes that lead from root to batch_root, 32 bytes each.';

----------------------------------------------------------------------------------------------------------------------------
-- Sealed months: what audits need of requests that may be moved to an archive (docs/runbooks/archive.md)
----------------------------------------------------------------------------------------------------------------------------

create table sealed_months (
  month      date        primary key check (extract(day from month) = 1),
  requests   bigint      not null check (requests >= 0),
  charged    bigint      not null check (charged >= 0),
  root       bytea       not null check (length(root) = 32),
  sealed_at  timestamptz not null default clock_timestamp(),
  dropped_at timestamptz
);
comment on table  sealed_months is 'Months whose audit is final. Sealed in order: every request before the end of the last sealed month is in a sealed month. The month of a request is the month in its id.';
comment on column sealed_months.requests is 'Number of requests. Excludes refused ones, which are in no archive.';
comment on column sealed_months.root is 'Last hash of the chain over the requests, ordered by partition and id, as `penny archive export` writes them.';
comment on column sealed_months.dropped_at is 'When the requests were deleted. The archive file was verified before.';

create table sealed_accounts (
  partition  smallint       not null,
  account_id uuid           not null,
  month      date           not null,
  requests   bigint         not null,
  charged    bigint         not null,
  entries    int8multirange not null,
  primary key (partition, account_id, month)
);
comment on table  sealed_accounts is 'Charges of an account for the requests of a sealed month.';
comment on column sealed_accounts.entries is 'Entry numbers of these requests.';

create table sealed_keys (
  partition  smallint not null,
  account_id uuid     not null,
  key_id     uuid     not null,
  day        date     not null,
  month      date     not null,
  charged    bigint   not null,
  primary key (partition, account_id, key_id, day, month)
);
comment on table  sealed_keys is 'Charges of a key for the requests of a sealed month, by the day (UTC) on which they were created. Every window of a key begins at the start of a day.';

create table sealed_payments (
  partition  smallint not null,
  account_id uuid     not null,
  number     bigint   not null,
  month      date     not null,
  requests   bigint   not null,
  charged    bigint   not null,
  leaves     bytea,
  primary key (partition, account_id, number, month)
);
comment on table  sealed_payments is 'The part of a payment that covers a sealed month.';
comment on column sealed_payments.leaves is 'Hashes of all entries of the payment, 32 bytes each. Set when some of its entries stay in the database: proofs of these need the hashes of the archived ones.';

----------------------------------------------------------------------------------------------------------------------------
-- Money in and out
----------------------------------------------------------------------------------------------------------------------------

create table sweeps (
  partition  smallint    not null,
  id         uuid        not null,
  account_id uuid        not null,
  amount     bigint      not null check (amount > 0),
  nonce      bigint      not null,
  signed_tx  bytea,
  tx_hash    bytea       check (length(tx_hash) = 32),
  state      text        not null check (state = any ('{planned,sent,confirmed,credited,failed}')),
  reason     text,
  created_at timestamptz not null default clock_timestamp(),
  changed_at timestamptz not null default clock_timestamp(),
  primary key (partition, id)
);
create index sweeps_of_account on sweeps (account_id, nonce);
create index sweeps_open on sweeps (account_id) where state = any ('{planned,sent,confirmed}');
comment on table sweeps is 'Transactions that move USDC from a deposit address into the gateway.';

create table arrivals (
  partition  smallint    not null,
  account_id uuid        not null,
  block      bigint      not null,
  log_index  integer     not null,
  tx_hash    bytea       not null check (length(tx_hash) = 32),
  sender     text        not null,
  amount     bigint      not null check (amount > 0),
  sweep_id   uuid,
  seen_at    timestamptz not null default clock_timestamp(),
  primary key (partition, account_id, block, log_index)
);
create index arrivals_waiting on arrivals (seen_at) where sweep_id is null;
comment on table arrivals is 'USDC transfers to deposit addresses, from the logs of the chain.';

create table deposits (
  partition  smallint    not null,
  id         uuid        not null,
  account_id uuid        not null,
  amount     bigint      not null check (amount > 0),
  source     text        not null,
  tx_hash    bytea       check (length(tx_hash) = 32),
  block      bigint,
  created_at timestamptz not null default clock_timestamp(),
  primary key (partition, id),
  foreign key (partition, account_id) references accounts (partition, id)
);
create index deposits_of_account on deposits (account_id);
create index deposits_of_transaction on deposits (tx_hash) where tx_hash is not null;
comment on table deposits is 'Deposits that were added to the balance of an account.';

create table transfers (
  partition     smallint    not null,
  id            uuid        not null,
  kind          text        not null,
  account_id    uuid,
  amount        bigint      not null,
  from_credit   bigint      not null default 0,
  fee_max       bigint      not null default 0,
  fee           bigint,
  counterparty  text        not null check (counterparty ~ '^0x[0-9a-f]{40}$'),
  after_entry   bigint      not null default 0,
  epoch         bigint,
  sequence      bigint,
  nonce         bytea,
  valid_after   bigint,
  valid_before  bigint,
  request_id    uuid,
  state         text        not null default 'requested',
  reason        text,
  attempts      integer     not null default 0,
  gateway_id    text,
  signature     bytea,
  tx_hash       bytea,
  created_at    timestamptz not null default clock_timestamp(),
  authorized_at timestamptz,
  ready_at      timestamptz,
  sent_at       timestamptz,
  changed_at    timestamptz not null default clock_timestamp(),
  primary key (partition, id),
  constraint transfers_kind check (kind = any ('{withdrawal,payout,refund,x402}')),
  constraint transfers_account check ((kind = 'payout') = (account_id is null)),
  constraint transfers_state check (state = any ('{requested,sent,received,batched,confirmed,failed}')),
  constraint transfers_nonce check ((sequence is null) = (epoch is null) and (kind = 'refund') = (sequence is not null)
    and (kind = 'x402') = (num_nulls(nonce, valid_after, valid_before, request_id) = 0)),
  constraint transfers_amounts check (amount > 0 and from_credit between 0 and amount and fee_max >= 0 and fee_max < amount
    and fee between 0 and fee_max),
  constraint transfers_bytes check (length(signature) = 65 and length(tx_hash) = 32 and length(nonce) = 32)
) with (fillfactor = 70);
create index transfers_out on transfers (account_id, created_at) where kind = any ('{withdrawal,refund}');
create index transfers_of_seller on transfers (counterparty, created_at) where kind = 'payout';
create index transfers_by_gateway_id on transfers (gateway_id) where gateway_id is not null;
create index transfers_open on transfers (changed_at) where state = any ('{requested,sent,received,batched}');
create index transfers_withdrawn on transfers (changed_at) where state = 'confirmed' and kind = 'withdrawal';
comment on table  transfers is 'Money that moves on chain. withdrawal: from an account to its owner. payout: of the seller''s revenue. refund: unused credit that the seller pays back to a wallet. x402: from a wallet to the seller in advance, one per request. Their states and steps are explained in src/settlement/transfers/machine.ts.';
comment on column transfers.account_id is 'Null for payouts, which are the seller''s. They are in partition 0.';
comment on column transfers.amount is 'Deducted from the account or the seller. The recipient gets amount - fee_max; the difference between fee_max and fee is returned.';
comment on column transfers.from_credit is 'The part that was taken from accounts.credit; the rest was taken from accounts.gateway.';
comment on column transfers.counterparty is 'The address at the other end.';
comment on column transfers.after_entry is 'Withdrawals: charges up to this entry are paid on chain before the withdrawal is submitted to the gateway.';
comment on column transfers.sequence is 'Sequence in the nonce of the authorization, and its epoch. A withdrawal or payout has a salt instead, derived from its id.';
comment on column transfers.nonce is 'x402: nonce of the authorization, which the wallet chose. The id of the transfer, which is that of its deposit, is derived from payer and nonce. A row is deleted when the gateway refuses the only attempt, or when the authorization has expired and the gateway does not have it.';
comment on column transfers.valid_before is 'x402: the authorization expires at this time. Seconds since 1970.';
comment on column transfers.request_id is 'x402: the request that is paid. One payment pays one request.';
comment on column transfers.attempts is 'How often the transfer was submitted. A failure counts only if it is of the latest attempt: a later one may have been accepted.';
comment on column transfers.signature is 'Signature of the burn intent or authorization. A retry submits the same signed message.';
comment on column transfers.gateway_id is 'Of an x402 payment also: its amount was credited.';
comment on column transfers.authorized_at is 'Start of the validity window of the authorization. Null: created_at.';
comment on column transfers.ready_at is 'Withdrawals: when the charges up to after_entry were paid on chain.';
comment on column transfers.sent_at is 'When the transfer was first submitted. x402: when a request last claimed it; a retry may claim it later if the outcome is still unknown, because the process of the first claim may have died.';

create table chain_cursors (
  name       text        primary key,
  block      bigint      not null,
  changed_at timestamptz not null default clock_timestamp()
);
comment on table chain_cursors is 'The block that each reader of the chain has reached.';

create table gateway_cursor (
  single     boolean     primary key default true check (single),
  cursor     text        not null check (length(cursor) <= 500),
  changed_at timestamptz not null default clock_timestamp()
);
comment on table gateway_cursor is 'Position up to which the gateway''s list of payment changes was read. One row; none if the gateway has no such list.';

create table solvency (
  single     boolean     primary key default true check (single),
  report     jsonb       not null,
  ok         boolean     not null,
  checked_at timestamptz not null default clock_timestamp(),
  snapshot_wanted_at timestamptz
);
comment on table solvency is 'The last comparison of the ledger with the chain. One row.';
comment on column solvency.snapshot_wanted_at is 'When an operator asked for a snapshot of the liabilities before the next hour.';

create table liability_snapshots (
  number    bigint      primary key,
  taken_at  timestamptz not null,
  root      bytea       not null check (length(root) = 32),
  sum       bigint      not null check (sum >= 0),
  leaves    bigint      not null check (leaves >= 0),
  booked    bigint      not null,
  block     bigint      not null check (block >= 0),
  on_chain  bigint      not null check (on_chain >= 0),
  previous  bytea       not null unique check (length(previous) = 32),
  digest    bytea       not null unique check (length(digest) = 32),
  signature bytea       not null check (length(signature) = 65),
  salt_key  bytea       not null check (length(salt_key) = 32),
  constraint liability_snapshots_booked check (sum = booked),
  constraint liability_snapshots_number check (number = floor(extract(epoch from taken_at) / 60))
);
comment on table  liability_snapshots is 'What the service owed to all accounts at one instant: a tree, signed by the issuer. src/receipts/liability-tree.ts explains it. previous is unique, so the snapshots are one chain.';
comment on column liability_snapshots.number is 'The minute, counted from 1970. After a restore no number is used twice.';
comment on column liability_snapshots.booked is 'The same sum from the running totals of the accounts: deposited + given_back - charged - withdrawn, plus open withdrawals.';
comment on column liability_snapshots.on_chain is 'What the gateway''s contract had for the accounts at block: their balances, and the seller''s as far as it owes them.';
comment on column liability_snapshots.digest is 'What is signed. The next snapshot names it as previous.';
comment on column liability_snapshots.salt_key is 'Random. The salt of a leaf is the HMAC of its account under this key.';

create table liability_leaves (
  number     bigint   not null references liability_snapshots on delete cascade,
  part       integer  not null check (part >= 0),
  first_salt bytea    not null,
  hash       bytea    not null,
  sum        bigint   not null,
  accounts   uuid[]   not null,
  amounts    bigint[] not null check (cardinality(amounts) = cardinality(accounts)),
  primary key (number, part)
);
comment on table  liability_leaves is 'The leaves of a snapshot in the order of their salts, in parts that each are one subtree. A path needs one part, and hash and sum of the others.';

create table settlement_terms (
  single     boolean     primary key default true check (single),
  terms      jsonb       not null,
  issuer     text        not null,
  changed_at timestamptz not null default clock_timestamp()
);
comment on table settlement_terms is 'What machines without a signer need from the machine that settles: to request payments from wallets and to write receipts. One row; none before settlement first ran.';
comment on column settlement_terms.terms is 'Chain, contracts and seller.';
comment on column settlement_terms.issuer is 'Address of the key that signs receipts.';

create table process_metrics (
  name       text             primary key,
  value      double precision not null,
  changed_at timestamptz      not null default clock_timestamp()
);
comment on table process_metrics is 'Metrics of processes that have no HTTP port. The web process exports them.';
comment on column process_metrics.name is 'Key of the metric in src/http/ledger-metrics.ts.';

----------------------------------------------------------------------------------------------------------------------------
-- Members of an account: their roles, and the log of their actions
----------------------------------------------------------------------------------------------------------------------------

create table memberships (
  partition      smallint    not null,
  account_id     uuid        not null,
  person_id      uuid        not null,
  role           text        not null check (role = any ('{viewer,developer,admin,owner}')),
  spending_limit bigint      check (spending_limit > 0),
  limit_window   text        not null default 'lifetime' check (limit_window = any ('{lifetime,day,week,month}')),
  limit_since    timestamptz,
  joined_at      timestamptz not null default clock_timestamp(),
  owner_since    timestamptz,
  last_active_at timestamptz,
  primary key (partition, account_id, person_id),
  foreign key (partition, account_id) references accounts (partition, id),
  constraint memberships_limit check ((spending_limit is null) = (limit_since is null)),
  constraint memberships_owner check ((role = 'owner') = (owner_since is not null))
);
create index memberships_of_person on memberships (person_id);
comment on table  memberships is 'Roles of people in accounts. Written under the lock of the account, so that an account with members always has an owner.';
comment on column memberships.spending_limit is 'Maximum spending of all keys that the member created, per limit_window. Enforced when keys are created and changed: the sum of their limits cannot exceed it.';
comment on column memberships.limit_since is 'When the limit was set. Spending of keys that were revoked before does not count.';
comment on column memberships.owner_since is 'When the person became owner. A new owner cannot confirm another withdrawal address before a waiting period has passed.';

create table account_log (
  partition  smallint    not null,
  account_id uuid        not null,
  id         uuid        not null,
  event      text        not null check (length(event) between 1 and 50),
  actor_kind text        not null check (actor_kind = any ('{person,api_key,management_key,operator,service}')),
  actor_id   uuid,
  actor_name text        check (length(actor_name) <= 200),
  method     text,
  network    text        check (length(network) <= 64),
  facts      jsonb       not null default '{}',
  created_at timestamptz not null default clock_timestamp(),
  primary key (partition, account_id, id)
);
create index account_log_newest on account_log (account_id, created_at desc, id desc);
create index account_log_by_age on account_log (created_at);
comment on table  account_log is 'Log of actions in an account. Written by the transaction of the action, if it has one. Deleted after 400 days; an account keeps its newest ten thousand.';
comment on column account_log.actor_name is 'Name at the time of the event.';
comment on column account_log.method is 'How the person was signed in.';
comment on column account_log.facts is 'Ids, names, amounts and addresses; never a secret.';

----------------------------------------------------------------------------------------------------------------------------
-- Events of an account, and the webhooks that send them (docs/webhooks.md)
----------------------------------------------------------------------------------------------------------------------------

create table events (
  partition  smallint    not null,
  account_id uuid        not null,
  number     bigint      not null,
  id         uuid        not null,
  type       text        not null,
  data       jsonb,
  created_at timestamptz not null,
  primary key (partition, account_id, number),
  constraint events_data check ((data is null) = (type = 'request.ended'))
);
create index events_by_age on events (created_at);
comment on table  events is 'Outbox: written by the transaction that the event reports (`write_events`). Deleted after some days; the number per account is limited.';
comment on column events.number is 'Sequence number in the account, assigned under the lock of the account. Has a gap only where an event could not be written.';
comment on column events.id is 'The same for every delivery of the event. The request id for request.ended, otherwise random: numbers are reused after a restore, ids are not.';
comment on column events.data is 'Amounts are text, in atomic units, under names that end in _atomic. Null for request.ended: the request never changes and is read when the event is sent.';

create table webhook_endpoints (
  partition         smallint      not null,
  id                uuid          not null,
  account_id        uuid          not null,
  url               text          not null check (length(url) between 1 and 2048),
  description       text          not null default '' check (length(description) <= 200),
  types             text[]        not null check (cardinality(types) between 1 and 50),
  secret            bytea         not null check (length(secret) between 24 and 64),
  old_secrets       bytea[]       not null default '{}' check (cardinality(old_secrets) <= 10),
  old_secrets_until timestamptz[] not null default '{}',
  created_at        timestamptz   not null default clock_timestamp(),
  disabled_at       timestamptz,
  disabled_reason   text          check (disabled_reason = any ('{failing,behind,gone,by_owner}')),
  sent_to           bigint        not null,
  due_at            timestamptz,
  failures          integer       not null default 0 check (failures >= 0),
  failing_since     timestamptz,
  is_slow           boolean       not null default true,
  primary key (partition, id),
  foreign key (partition, account_id) references accounts (partition, id),
  constraint webhook_endpoints_disabled_for_a_reason check ((disabled_at is null) = (disabled_reason is null)),
  constraint webhook_endpoints_old_secrets check (cardinality(old_secrets) = cardinality(old_secrets_until))
);
create index webhook_endpoints_of_account on webhook_endpoints (account_id);
create index webhook_endpoints_due on webhook_endpoints (due_at) where disabled_at is null and due_at is not null;
create index webhook_endpoints_disabled on webhook_endpoints (disabled_at) where disabled_at is not null;
comment on table  webhook_endpoints is 'Where events of an account are sent.';
comment on column webhook_endpoints.secret is 'Key of the HMAC. Not hashed, because signing needs it. Only the response to its creation contains it.';
comment on column webhook_endpoints.old_secrets is 'Earlier secrets. Each also signs until its time in old_secrets_until: a second rotation must not end the secret that the receiver still has.';
comment on column webhook_endpoints.sent_to is 'Number of the last event that was attempted. Failed events are in webhook_deliveries.';
comment on column webhook_endpoints.due_at is 'When the deliverer checks the endpoint for events to send. Later after consecutive failures. Null: nothing to send until an event is written (`wake_endpoints`).';
comment on column webhook_endpoints.failures is 'Number of consecutive failed attempts.';
comment on column webhook_endpoints.failing_since is 'When the first of these attempts failed.';
comment on column webhook_endpoints.is_slow is 'True until an attempt succeeds within a second. Slow endpoints share a few connections, so that they cannot delay others.';

create table webhook_deliveries (
  partition   smallint    not null,
  account_id  uuid        not null,
  endpoint_id uuid        not null,
  event_id    uuid        not null,
  number      bigint,
  type        text        not null,
  data        jsonb       not null,
  event_at    timestamptz not null,
  state       text        not null check (state = any ('{waiting,delivered,failed}')),
  due_at      timestamptz,
  attempts    jsonb       not null default '[]',
  created_at  timestamptz not null,
  primary key (partition, endpoint_id, event_id),
  constraint webhook_deliveries_due check ((state = 'waiting') = (due_at is not null))
);
create index webhook_deliveries_newest on webhook_deliveries (endpoint_id, created_at desc, event_id desc);
create index webhook_deliveries_waiting on webhook_deliveries (endpoint_id, due_at) where state = 'waiting';
create index webhook_deliveries_by_age on webhook_deliveries (created_at);
comment on table  webhook_deliveries is 'Delivered and attempted events of an endpoint. An endpoint keeps the newest thousand and all that are waiting.';
comment on column webhook_deliveries.number is 'Number of the event; null for a test event.';
comment on column webhook_deliveries.data is 'A copy of events.data: a waiting delivery must survive the deletion of old events.';
comment on column webhook_deliveries.attempts is 'The latest attempts: [{"at", "status", "error", "duration_ms", "answer"}].';

----------------------------------------------------------------------------------------------------------------------------
-- Alerts that account holders configure (docs/alerts.md)
----------------------------------------------------------------------------------------------------------------------------

create table alert_rules (
  partition  smallint    not null,
  account_id uuid        not null,
  kind       text        not null,
  threshold  bigint      check (threshold > 0),
  rearm      bigint      check (rearm >= 0),
  changed_at timestamptz not null,
  primary key (partition, account_id, kind),
  foreign key (partition, account_id) references accounts (partition, id),
  constraint alert_rules_kind check (kind = any ('{balance_empty,balance_below,days_left,spend_hour,spend_day,spend_unusual,key_limit,error_rate,settlement_stuck,withdrawal_stuck,webhook_disabled}')),
  constraint alert_rules_off check ((threshold is null) = (rearm is null))
);
create index alert_rules_changed on alert_rules (changed_at);
comment on table  alert_rules is 'Rules that the holder of an account has set. A kind without a row has the initial rule of src/alerts/kinds.ts.';
comment on column alert_rules.threshold is 'In the unit of the kind; USDC are atomic. Null: off.';
comment on column alert_rules.rearm is 'A fired alert is resolved at this level. It cannot fire again before that.';

create table alerts (
  partition   smallint    not null,
  account_id  uuid        not null,
  kind        text        not null,
  subject     text        not null check (length(subject) <= 100),
  level       text        not null check (level = any ('{warning,error}')),
  message     text        not null check (length(message) <= 600),
  value       bigint      not null,
  fired_at    timestamptz not null,
  resolved_at timestamptz,
  primary key (partition, account_id, kind, subject)
);
create index alerts_open on alerts (partition, account_id) where resolved_at is null;
create index alerts_resolved on alerts (resolved_at) where resolved_at is not null;
comment on table  alerts is 'The last time that each alert of an account fired. Written in the transaction of its event.';
comment on column alerts.subject is 'Id of the API key or webhook endpoint; empty if the alert is about the account.';

create table alert_emails (
  partition   smallint    not null,
  account_id  uuid        not null,
  address     text        check (length(address) between 3 and 254),
  token_hash  bytea       check (length(token_hash) = 32),
  token_until timestamptz,
  verified_at timestamptz,
  links       smallint    not null,
  links_from  timestamptz not null,
  sent        integer     not null default 0,
  sent_from   timestamptz,
  primary key (partition, account_id),
  foreign key (partition, account_id) references accounts (partition, id),
  constraint alert_emails_token check ((token_hash is null) = (token_until is null)),
  constraint alert_emails_verified check (verified_at is null or address is not null)
);
create index alert_emails_by_address on alert_emails (lower(address)) where address is not null;
comment on table  alert_emails is 'Email addresses for alerts. An unverified address receives only the verification link.';
comment on column alert_emails.links is 'Number of links sent since links_from. Kept when the address is removed.';
comment on column alert_emails.sent is 'Number of alerts mailed since sent_from.';

create table alert_mails (
  partition  smallint    not null,
  id         uuid        not null,
  account_id uuid        not null,
  address    text        not null,
  subject    text        not null,
  body       text        not null,
  due_at     timestamptz not null,
  attempts   smallint    not null default 0,
  created_at timestamptz not null,
  primary key (partition, id)
);
create index alert_mails_due on alert_mails (due_at);
create index alert_mails_of_account on alert_mails (account_id);
comment on table alert_mails is 'Queued mail. Deleted when the mail server has accepted it, or after a day.';

----------------------------------------------------------------------------------------------------------------------------
-- Sign-in. These tables are not partitioned, because they are read before the partition of the account is known.
----------------------------------------------------------------------------------------------------------------------------

create table people (
  id         uuid        primary key,
  name       text        not null check (length(name) between 1 and 200),
  created_at timestamptz not null default clock_timestamp()
);
comment on table people is 'People who can sign in. A person has wallets and passkeys and is a member of accounts.';

create table sessions (
  token_hash   bytea       primary key check (length(token_hash) = 32),
  id           uuid        not null unique,
  person_id    uuid        not null,
  partition    smallint    not null,
  account_id   uuid        not null,
  method       text        not null check (method = any ('{wallet,passkey,link,local}')),
  browser      text        check (length(browser) <= 200),
  created_at   timestamptz not null default clock_timestamp(),
  last_used_at timestamptz not null default clock_timestamp(),
  expires_at   timestamptz not null
);
create index sessions_by_age on sessions (expires_at);
create index sessions_of_account on sessions (account_id);
create index sessions_of_person on sessions (person_id);
comment on table  sessions is 'Signed-in browsers. Only the cookie contains the token.';
comment on column sessions.account_id is 'The account that the person has selected. The role is read from memberships with every request.';

create table wallets (
  address      text        primary key check (address ~ '^0x[0-9a-f]{40}$'),
  person_id    uuid        not null,
  added_at     timestamptz not null default clock_timestamp(),
  last_used_at timestamptz
);
create index wallets_of_person on wallets (person_id);
comment on table wallets is 'Wallets that people sign in with.';

create table x402_wallets (
  address    text        primary key check (address ~ '^0x[0-9a-f]{40}$'),
  partition  smallint    not null,
  account_id uuid        not null,
  key_id     uuid        not null,
  created_at timestamptz not null default clock_timestamp()
);
comment on table  x402_wallets is 'The wallet account of an address. Written when its first payment has been accepted.';
comment on column x402_wallets.key_id is 'The key of the account that its requests are recorded under. It has no secret.';

create table x402_sign_ins (
  nonce      text        primary key check (length(nonce) between 8 and 200),
  expires_at timestamptz not null
);
create index x402_sign_ins_by_age on x402_sign_ins (expires_at);
comment on table x402_sign_ins is 'Used nonces of sign-ins (CAIP-122). Each can be used once.';

create table passkeys (
  credential_id bytea       primary key check (length(credential_id) between 16 and 1023),
  id            uuid        not null unique,
  person_id     uuid        not null,
  name          text        not null check (length(name) between 1 and 200),
  public_key    bytea       not null check (length(public_key) <= 2048),
  algorithm     integer     not null check (algorithm in (-7, -8, -257)),
  sign_count    bigint      not null check (sign_count >= 0),
  added_at      timestamptz not null default clock_timestamp(),
  last_used_at  timestamptz
);
create index passkeys_of_person on passkeys (person_id);
comment on table passkeys is 'Passkeys that people sign in with.';

create table invitations (
  token_hash     bytea       primary key check (length(token_hash) = 32),
  id             uuid        not null unique,
  partition      smallint    not null,
  account_id     uuid        not null,
  role           text        not null check (role = any ('{viewer,developer,admin,owner}')),
  spending_limit bigint      check (spending_limit > 0),
  limit_window   text        not null default 'lifetime' check (limit_window = any ('{lifetime,day,week,month}')),
  invited_by     uuid        not null,
  created_at     timestamptz not null default clock_timestamp(),
  expires_at     timestamptz not null,
  used_by        uuid,
  used_at        timestamptz,
  check ((used_by is null) = (used_at is null))
);
create index invitations_of_account on invitations (account_id);
create index invitations_by_age on invitations (expires_at);
comment on table  invitations is 'One-time links that make a person a member of an account. Revoked invitations are deleted; used ones stay until they expire.';
comment on column invitations.token_hash is 'SHA-256 of the token. Only the link contains the token.';
comment on column invitations.invited_by is 'The person who created the link. The invitation is deleted when this person leaves the account or gets another role.';

create table management_keys (
  id           uuid        primary key,
  hash         bytea       not null unique check (length(hash) = 32),
  partition    smallint    not null,
  account_id   uuid        not null,
  name         text        not null check (length(name) between 1 and 200),
  hint         text        not null,
  scopes       text[]      not null check (cardinality(scopes) between 1 and 20),
  made_by      uuid        not null,
  known_to     uuid        not null,
  created_at   timestamptz not null default clock_timestamp(),
  last_used_at timestamptz,
  expires_at   timestamptz,
  revoked_at   timestamptz
);
create index management_keys_of_account on management_keys (account_id);
comment on table  management_keys is 'Keys for programs that manage an account over /api. They are not accepted under /v1 and cannot spend.';
comment on column management_keys.made_by is 'The person who created the key. It is revoked when this person leaves the account or is no longer an admin.';
comment on column management_keys.known_to is 'The person who received the secret: the one who created the key or rotated it last. The key is revoked when this person leaves the account or is no longer an admin.';

create table sign_in_challenges (
  nonce      text        primary key check (length(nonce) between 22 and 64),
  purpose    text        not null check (purpose = any ('{wallet,register,sign_in,owner}')),
  message    text        check (length(message) <= 2000),
  expires_at timestamptz not null
);
create index sign_in_challenges_by_age on sign_in_challenges (expires_at);
comment on table sign_in_challenges is 'Challenges that must be signed to sign in. Valid once: deleted before the signature is checked.';

create table login_links (
  token_hash bytea       primary key check (length(token_hash) = 32),
  partition  smallint    not null,
  account_id uuid        not null,
  expires_at timestamptz not null
);
comment on table login_links is 'One-time sign-in links, printed by an operator''s command or by the sandbox when it starts.';

create table device_logins (
  device_hash      bytea       primary key check (length(device_hash) = 32),
  user_code        text        not null unique check (user_code ~ '^[A-Z]{8}$'),
  machine          text        not null check (length(machine) between 1 and 100),
  network          text        not null check (length(network) <= 64),
  status           text        not null default 'pending' check (status = any ('{pending,confirmed,declined}')),
  partition        smallint,
  account_id       uuid,
  person_id        uuid,
  terms            jsonb,
  interval_seconds integer     not null check (interval_seconds between 1 and 600),
  polled_at        timestamptz,
  created_at       timestamptz not null default clock_timestamp(),
  expires_at       timestamptz not null,
  check ((status = 'confirmed') = (account_id is not null and partition is not null and person_id is not null and terms is not null))
);
create index device_logins_of_network on device_logins (network, expires_at);
comment on table  device_logins is 'Terminals that wait for a person to confirm their login. Deleted when the terminal receives the key.';
comment on column device_logins.device_hash is 'SHA-256 of the secret that only the waiting terminal has.';
comment on column device_logins.user_code is 'Code that the person compares with the one in the terminal. Useless without a session.';
comment on column device_logins.machine is 'Name that the terminal sent. Unverified.';
comment on column device_logins.person_id is 'The person who confirmed the login. The key is created in this person''s name.';
comment on column device_logins.terms is 'Name, limit and expiry of the key, as confirmed. The key is created when the terminal fetches it.';

----------------------------------------------------------------------------------------------------------------------------
-- Types of the functions' arguments and results
----------------------------------------------------------------------------------------------------------------------------

create type hold_call as (id uuid, account_of integer, key_of integer, quote bigint, model text, stream boolean, max_tokens integer,
  body_hash bigint, options_version integer);
create type extension_call as (id uuid, account_of integer, key_of integer, total bigint);
create type end_call as (id uuid, status text, voided boolean, charged bigint, search_cost bigint, search_calls smallint,
  fetch_calls smallint, prompt_tokens integer, completion_tokens integer, reasoning_tokens integer, cached_tokens integer,
  usage_source text, finish_reason text, error_code text, first_token_ms integer, total_ms integer, provider text, attempts smallint,
  upstream_cost bigint, tool_calls jsonb);
create type checkpoint_call as (id uuid, prompt_tokens integer, completion_tokens integer);
create type tool_call as (request_id uuid, number smallint, kind text, status text, cost bigint, results integer);
create type refusal_call as (id uuid, account_id uuid, key_id uuid, model text, stream boolean, max_tokens integer, error_code text);
create type event_call as (account_id uuid, type text, data jsonb);
create type payment_news as (account_id uuid, number bigint, state text, reason text, gateway_id text, batch bigint,
  batch_position integer, batch_size integer, batch_root bytea, batch_proof bytea, tx_hash bytea);

create type transfer_news as (id uuid, attempts integer, state text, reason text, gateway_id text, tx_hash bytea, fee bigint,
  signature bytea, authorized_at timestamptz);
create type x402_payment_call as (payer text, nonce bytea, account_id uuid, key_id uuid, deposit_id uuid, gateway_id text);

create type hold_rules as (is_frozen boolean, cap bigint, unsettled_cap bigint, is_extension boolean);
create type account_numbers as (gateway bigint, credit bigint, held bigint, extended bigint, unsettled bigint, is_suspended boolean);
create type key_numbers as (account_id uuid, refusal text, limit_amount bigint, window_start timestamptz, spent bigint, held bigint,
  options_version integer);
create type hold_decision as (decision text, authorized bigint, from_credit bigint, created_at timestamptz, spendable bigint,
  in_flight bigint, limit_left bigint);
create type open_hold as (extended bigint, key_window timestamptz);
create type ended_hold as (id uuid, account_id uuid, key_id uuid, key_window timestamptz, hour timestamptz, model text, quote bigint,
  extended bigint, authorized bigint, from_credit bigint, voided boolean, charged bigint, place integer);
comment on type account_numbers is 'Input of decide_hold about the account. All null if there is no such account.';
comment on type key_numbers is 'Input of decide_hold about the key. spent and held are those of the current window.';
