-- The schema after all migrations, each kind in alphabetical order. Generated: do not edit.

create table account_alerts (
  partition smallint not null,
  account_id uuid not null,
  balance_below bigint,
  days_below smallint,
  constraint account_alerts_pkey PRIMARY KEY (partition, account_id),
  constraint account_alerts_partition_account_id_fkey FOREIGN KEY (partition, account_id) REFERENCES accounts(partition, id),
  constraint account_alerts_balance_below_check CHECK (balance_below > 0),
  constraint account_alerts_days_below_check CHECK (days_below >= 1 AND days_below <= 365)
);

create table accounts (
  partition smallint not null,
  id uuid not null,
  name text not null,
  gateway bigint default 0 not null,
  credit bigint default 0 not null,
  held bigint default 0 not null,
  extended bigint default 0 not null,
  nonce_next bigint default 0 not null,
  created_at timestamp with time zone default clock_timestamp() not null,
  deposited bigint default 0 not null,
  authorized bigint default 0 not null,
  returned bigint default 0 not null,
  withdrawn bigint default 0 not null,
  charged bigint default 0 not null,
  unsettled bigint default 0 not null,
  address text,
  owner_address text,
  owner_usable_from timestamp with time zone,
  suspended_at timestamp with time zone,
  suspended_reason text,
  adjusted bigint default 0 not null,
  closed_at timestamp with time zone,
  settled bigint default 0 not null,
  constraint accounts_pkey PRIMARY KEY (partition, id),
  constraint accounts_address_check CHECK (address ~ '^0x[0-9a-f]{40}$'::text),
  constraint accounts_given_back_within_charged CHECK (adjusted <= charged),
  constraint accounts_name_check CHECK (length(name) >= 1 AND length(name) <= 200),
  constraint accounts_not_negative CHECK (LEAST(gateway, held, extended, unsettled, adjusted) >= 0) NOT VALID,
  constraint accounts_not_overspent CHECK ((gateway + credit - extended) >= 0),
  constraint accounts_owner_address_check CHECK (owner_address ~ '^0x[0-9a-f]{40}$'::text),
  constraint accounts_suspended_for_a_reason CHECK ((suspended_at IS NULL) = (suspended_reason IS NULL)),
  constraint accounts_suspended_reason_check CHECK (length(suspended_reason) >= 1 AND length(suspended_reason) <= 500)
) with (fillfactor=50);
CREATE UNIQUE INDEX accounts_by_address ON public.accounts USING btree (address, partition) WHERE (address IS NOT NULL);
comment on column accounts.unsettled is 'Sum of the payments under way: authorizations of ended requests, not final on chain.';
comment on column accounts.settled is 'Sum of the payments that are final on chain.';

create table adjustments (
  partition smallint not null,
  id uuid not null,
  account_id uuid not null,
  amount bigint not null,
  reason text not null,
  made_by text not null,
  created_at timestamp with time zone default clock_timestamp() not null,
  request_id uuid,
  constraint adjustments_pkey PRIMARY KEY (partition, id),
  constraint adjustments_partition_account_id_fkey FOREIGN KEY (partition, account_id) REFERENCES accounts(partition, id),
  constraint adjustments_amount_check CHECK (amount <> 0),
  constraint adjustments_made_by_check CHECK (length(made_by) >= 1 AND length(made_by) <= 200),
  constraint adjustments_reason_check CHECK (length(reason) >= 1 AND length(reason) <= 500)
);
CREATE INDEX adjustments_of_account ON public.adjustments USING btree (account_id, created_at);

create table api_key_hashes (
  hash bytea not null,
  partition smallint not null,
  account_id uuid not null,
  key_id uuid not null,
  hint text,
  expires_at timestamp with time zone,
  constraint api_key_hashes_pkey PRIMARY KEY (hash),
  constraint api_key_hashes_hash_check CHECK (length(hash) = 32)
);
CREATE INDEX api_key_hashes_of_key ON public.api_key_hashes USING btree (key_id);

create table api_keys (
  partition smallint not null,
  id uuid not null,
  account_id uuid not null,
  name text not null,
  hint text not null,
  limit_amount bigint,
  limit_window text default 'lifetime'::text not null,
  window_start timestamp with time zone default '-infinity'::timestamp with time zone not null,
  spent bigint default 0 not null,
  held bigint default 0 not null,
  expires_at timestamp with time zone,
  revoked_at timestamp with time zone,
  last_used_at timestamp with time zone,
  created_at timestamp with time zone default clock_timestamp() not null,
  disabled boolean default false not null,
  window_changed_at timestamp with time zone,
  refusals integer default 0 not null,
  refusals_from timestamp with time zone,
  constraint api_keys_pkey PRIMARY KEY (partition, id),
  constraint api_keys_partition_account_id_fkey FOREIGN KEY (partition, account_id) REFERENCES accounts(partition, id),
  constraint api_keys_disabled_is_revoked CHECK (NOT disabled OR revoked_at IS NOT NULL),
  constraint api_keys_limit_window_check CHECK (limit_window = ANY ('{lifetime,day,week,month}'::text[])) NOT VALID,
  constraint api_keys_name_check CHECK (length(name) >= 1 AND length(name) <= 200),
  constraint api_keys_not_negative CHECK (LEAST(limit_amount, spent, held) >= 0) NOT VALID
) with (fillfactor=50);
CREATE INDEX api_keys_of_account ON public.api_keys USING btree (account_id);
comment on column api_keys.window_changed_at is 'When limit_window was last changed: at most once a minute.';
comment on column api_keys.refusals is 'Refusals of the minute that begins at refusals_from.';

create table arrivals (
  partition smallint not null,
  account_id uuid not null,
  block bigint not null,
  log_index integer not null,
  tx_hash bytea not null,
  sender text not null,
  amount bigint not null,
  sweep_id uuid,
  seen_at timestamp with time zone default clock_timestamp() not null,
  constraint arrivals_pkey PRIMARY KEY (partition, account_id, block, log_index),
  constraint arrivals_amount_check CHECK (amount > 0),
  constraint arrivals_tx_hash_check CHECK (length(tx_hash) = 32)
);
CREATE INDEX arrivals_waiting ON public.arrivals USING btree (seen_at) WHERE (sweep_id IS NULL);

create table chain_cursors (
  name text not null,
  block bigint not null,
  changed_at timestamp with time zone default clock_timestamp() not null,
  constraint chain_cursors_pkey PRIMARY KEY (name)
);

create table checkpoints (
  partition smallint not null,
  id uuid not null,
  prompt_tokens integer not null,
  completion_tokens integer not null,
  constraint checkpoints_pkey PRIMARY KEY (partition, id),
  constraint checkpoints_completion_tokens_check CHECK (completion_tokens >= 0),
  constraint checkpoints_prompt_tokens_check CHECK (prompt_tokens >= 0)
);

create table deposits (
  partition smallint not null,
  id uuid not null,
  account_id uuid not null,
  amount bigint not null,
  source text not null,
  created_at timestamp with time zone default clock_timestamp() not null,
  tx_hash bytea,
  block bigint,
  constraint deposits_pkey PRIMARY KEY (partition, id),
  constraint deposits_partition_account_id_fkey FOREIGN KEY (partition, account_id) REFERENCES accounts(partition, id),
  constraint deposits_amount_check CHECK (amount > 0),
  constraint deposits_tx_hash_check CHECK (length(tx_hash) = 32)
);
CREATE INDEX deposits_of_account ON public.deposits USING btree (account_id);
CREATE INDEX deposits_of_transaction ON public.deposits USING btree (tx_hash) WHERE (tx_hash IS NOT NULL);

create table ledger_state (
  single boolean default true not null,
  frozen_at timestamp with time zone,
  reason text,
  unsettled_cap bigint default 5000000 not null,
  withdrawal_fee_max bigint default 0 not null,
  constraint ledger_state_pkey PRIMARY KEY (single),
  constraint ledger_state_single_check CHECK (single),
  constraint ledger_state_unsettled_cap_check CHECK (unsettled_cap > 0),
  constraint ledger_state_withdrawal_fee_max_check CHECK (withdrawal_fee_max >= 0)
);

create table login_links (
  token_hash bytea not null,
  partition smallint not null,
  account_id uuid not null,
  expires_at timestamp with time zone not null,
  constraint login_links_pkey PRIMARY KEY (token_hash),
  constraint login_links_token_hash_check CHECK (length(token_hash) = 32)
);

create table migrations (
  number integer not null,
  name text not null,
  sha256 text not null,
  applied_at timestamp with time zone default clock_timestamp() not null,
  constraint migrations_pkey PRIMARY KEY (number)
);

create table nodes (
  id uuid not null,
  started_at timestamp with time zone default clock_timestamp() not null,
  lease_until timestamp with time zone not null,
  constraint nodes_pkey PRIMARY KEY (id)
);

create table passkeys (
  credential_id bytea not null,
  id uuid not null,
  partition smallint not null,
  account_id uuid not null,
  name text not null,
  public_key bytea not null,
  algorithm integer not null,
  sign_count bigint not null,
  added_at timestamp with time zone default clock_timestamp() not null,
  last_used_at timestamp with time zone,
  constraint passkeys_pkey PRIMARY KEY (credential_id),
  constraint passkeys_id_key UNIQUE (id),
  constraint passkeys_algorithm_check CHECK (algorithm = ANY (ARRAY['-7'::integer, '-8'::integer, '-257'::integer])),
  constraint passkeys_credential_id_check CHECK (length(credential_id) >= 16 AND length(credential_id) <= 1023),
  constraint passkeys_name_check CHECK (length(name) >= 1 AND length(name) <= 200),
  constraint passkeys_public_key_check CHECK (length(public_key) <= 2048),
  constraint passkeys_sign_count_check CHECK (sign_count >= 0)
);
CREATE INDEX passkeys_of_account ON public.passkeys USING btree (account_id);

create table payouts (
  id uuid not null,
  amount bigint not null,
  recipient text not null,
  state text not null,
  reason text,
  rail_id text,
  tx_hash bytea,
  created_at timestamp with time zone default clock_timestamp() not null,
  changed_at timestamp with time zone default clock_timestamp() not null,
  fee_max bigint default 0 not null,
  fee bigint,
  signature bytea,
  constraint payouts_pkey PRIMARY KEY (id),
  constraint payouts_amount_check CHECK (amount > 0),
  constraint payouts_fee_within_its_maximum CHECK (fee >= 0 AND fee <= fee_max),
  constraint payouts_signature_check CHECK (length(signature) = 65),
  constraint payouts_something_arrives CHECK (fee_max >= 0 AND fee_max < amount),
  constraint payouts_state_check CHECK (state = ANY (ARRAY['requested'::text, 'sent'::text, 'confirmed'::text, 'failed'::text])),
  constraint payouts_tx_hash_check CHECK (length(tx_hash) = 32)
);

create table prices (
  version text not null,
  model text not null,
  input_per_million bigint not null,
  output_per_million bigint not null,
  search_per_call bigint not null,
  constraint prices_pkey PRIMARY KEY (version, model),
  constraint prices_input_per_million_check CHECK (input_per_million > 0),
  constraint prices_output_per_million_check CHECK (output_per_million > 0),
  constraint prices_search_per_call_check CHECK (search_per_call >= 0)
);

create table replays (
  partition smallint not null,
  account_id uuid not null,
  key_hash bytea not null,
  body_hash bytea not null,
  request_id uuid not null,
  answer text,
  created_at timestamp with time zone default clock_timestamp() not null,
  key_id uuid,
  node uuid,
  earlier_id uuid,
  wanted_at timestamp with time zone,
  is_keyed boolean default true not null,
  constraint replays_pkey PRIMARY KEY (partition, account_id, key_hash),
  constraint replays_body_hash_check CHECK (length(body_hash) = 32),
  constraint replays_key_hash_check CHECK (length(key_hash) = 32)
);
CREATE INDEX replays_by_age ON public.replays USING btree (created_at);
CREATE INDEX replays_wanted ON public.replays USING btree (node) WHERE (wanted_at IS NOT NULL);
comment on column replays.key_id is 'API key of the request. An Idempotency-Key is valid for one API key.';
comment on column replays.node is 'Node that serves the request. Null in rows that were written before this column existed.';
comment on column replays.earlier_id is 'Attempt that this request replaces: part of its charge is refunded when this request is delivered.';
comment on column replays.wanted_at is 'Last time a retry on another node asked for the answer.';
comment on column replays.is_keyed is 'False when the key was derived from API key and body of an SDK retry.';

create table requests (
  partition smallint not null,
  id uuid not null,
  account_id uuid not null,
  key_id uuid not null,
  node uuid not null,
  status text not null,
  model text,
  stream boolean not null,
  max_tokens integer,
  price_version text,
  body_hash bigint,
  created_at timestamp with time zone not null,
  ended_at timestamp with time zone,
  quote bigint default 0 not null,
  from_credit bigint default 0 not null,
  authorized bigint default 0 not null,
  extended bigint default 0 not null,
  nonce bigint,
  key_window timestamp with time zone default '-infinity'::timestamp with time zone not null,
  voided boolean default false not null,
  charged bigint default 0 not null,
  search_cost bigint default 0 not null,
  search_calls smallint default 0 not null,
  fetch_calls smallint default 0 not null,
  prompt_tokens integer,
  completion_tokens integer,
  reasoning_tokens integer,
  cached_tokens integer,
  usage_source text,
  finish_reason text,
  error_code text,
  first_token_ms integer,
  total_ms integer,
  constraint requests_pkey PRIMARY KEY (partition, id),
  constraint requests_authorization_has_nonce CHECK ((authorized > 0) = (nonce IS NOT NULL)),
  constraint requests_charge_within_hold CHECK (search_cost <= charged AND charged <= (quote + extended)) NOT VALID,
  constraint requests_ended CHECK ((status = 'held'::text) = (ended_at IS NULL)),
  constraint requests_hold_is_whole CHECK (quote = (from_credit + authorized)),
  constraint requests_not_negative CHECK (LEAST(quote, authorized, extended, charged, search_cost) >= 0 AND LEAST(prompt_tokens, completion_tokens, reasoning_tokens, cached_tokens) >= 0 AND LEAST(search_calls, fetch_calls) >= 0) NOT VALID,
  constraint requests_status_check CHECK (status = ANY ('{held,succeeded,failed,cancelled,refused}'::text[])) NOT VALID,
  constraint requests_usage_source_check CHECK (usage_source = ANY ('{upstream,counted}'::text[])) NOT VALID,
  constraint requests_void_is_free CHECK (NOT voided OR charged = 0)
) with (fillfactor=80);
CREATE INDEX requests_held ON public.requests USING btree (account_id) WHERE (status = 'held'::text);
CREATE INDEX requests_not_succeeded ON public.requests USING btree (account_id, id) INCLUDE (status, error_code, key_id, model, created_at, quote, charged) WHERE (status <> ALL (ARRAY['held'::text, 'succeeded'::text]));
CREATE INDEX requests_of_account ON public.requests USING btree (account_id, id);
CREATE INDEX requests_of_body_newest ON public.requests USING btree (account_id, body_hash, created_at DESC) WHERE (body_hash IS NOT NULL);
CREATE INDEX requests_of_key ON public.requests USING btree (key_id, id);
CREATE INDEX requests_refused ON public.requests USING btree (created_at) WHERE (status = 'refused'::text);
CREATE INDEX requests_refused_of_key ON public.requests USING btree (key_id, id) INCLUDE (account_id, error_code, created_at) WHERE (status = 'refused'::text);
CREATE INDEX requests_with_search ON public.requests USING btree (account_id, id) WHERE (search_calls > 0);
comment on column requests.key_window is 'Of an open request: the window of its key that it is held in. Not kept up to date after its end.';

create table sessions (
  token_hash bytea not null,
  id uuid not null,
  partition smallint not null,
  account_id uuid not null,
  method text not null,
  browser text,
  created_at timestamp with time zone default clock_timestamp() not null,
  last_used_at timestamp with time zone default clock_timestamp() not null,
  expires_at timestamp with time zone not null,
  constraint sessions_pkey PRIMARY KEY (token_hash),
  constraint sessions_id_key UNIQUE (id),
  constraint sessions_browser_check CHECK (length(browser) <= 200),
  constraint sessions_method_check CHECK (method = ANY (ARRAY['wallet'::text, 'passkey'::text, 'link'::text, 'local'::text])),
  constraint sessions_token_hash_check CHECK (length(token_hash) = 32)
);
CREATE INDEX sessions_by_age ON public.sessions USING btree (expires_at);
CREATE INDEX sessions_of_account ON public.sessions USING btree (account_id);

create table settlements (
  partition smallint not null,
  id uuid not null,
  revision smallint default 0 not null,
  account_id uuid not null,
  charged bigint not null,
  value bigint default 0 not null,
  nonce bigint,
  authorized_at timestamp with time zone,
  state text not null,
  reason text,
  rail_id text,
  batch bigint,
  tx_hash bytea,
  receipt_number bigint,
  receipt_hash bytea,
  receipt_root bytea,
  receipt_proof bytea,
  signature bytea,
  ended_at timestamp with time zone not null,
  changed_at timestamp with time zone not null,
  epoch bigint,
  batch_position integer,
  batch_size integer,
  constraint settlements_pkey PRIMARY KEY (partition, id, revision),
  constraint settlements_epoch_check CHECK (epoch >= 0),
  constraint settlements_nothing_to_pay CHECK ((value = 0) = (state = ANY ('{none,voided}'::text[]))) NOT VALID,
  constraint settlements_payment_has_nonce CHECK (value >= 0 AND (value > 0) = (nonce IS NOT NULL)) NOT VALID,
  constraint settlements_receipt_hash_check CHECK (length(receipt_hash) = 32),
  constraint settlements_receipt_root_check CHECK (length(receipt_root) = 32),
  constraint settlements_state_check CHECK (state = ANY ('{none,voided,allocated,signed,submitted,received,batched,confirmed,completed,failed,unknown}'::text[])) NOT VALID,
  constraint settlements_tx_hash_check CHECK (length(tx_hash) = 32)
) with (fillfactor=70);
CREATE INDEX settlements_failed ON public.settlements USING btree (changed_at) WHERE (state = 'failed'::text);
CREATE INDEX settlements_of_transaction ON public.settlements USING btree (tx_hash) WHERE (tx_hash IS NOT NULL);
CREATE INDEX settlements_open ON public.settlements USING btree (changed_at) WHERE ((receipt_number IS NOT NULL) AND (state = ANY (ARRAY['allocated'::text, 'signed'::text, 'submitted'::text, 'received'::text, 'batched'::text, 'confirmed'::text, 'unknown'::text])));
CREATE UNIQUE INDEX settlements_receipts ON public.settlements USING btree (partition, account_id, receipt_number) WHERE (receipt_number IS NOT NULL);
CREATE INDEX settlements_without_receipt ON public.settlements USING btree (ended_at) WHERE (receipt_number IS NULL);

create table sign_in_challenges (
  nonce text not null,
  purpose text not null,
  message text,
  expires_at timestamp with time zone not null,
  constraint sign_in_challenges_pkey PRIMARY KEY (nonce),
  constraint sign_in_challenges_message_check CHECK (length(message) <= 2000),
  constraint sign_in_challenges_nonce_check CHECK (length(nonce) >= 22 AND length(nonce) <= 64),
  constraint sign_in_challenges_purpose_check CHECK (purpose = ANY (ARRAY['wallet'::text, 'register'::text, 'sign_in'::text, 'owner'::text]))
);
CREATE INDEX sign_in_challenges_by_age ON public.sign_in_challenges USING btree (expires_at);

create table solvency (
  single boolean default true not null,
  report jsonb not null,
  ok boolean not null,
  checked_at timestamp with time zone default clock_timestamp() not null,
  constraint solvency_pkey PRIMARY KEY (single),
  constraint solvency_single_check CHECK (single)
);

create table sweeps (
  partition smallint not null,
  id uuid not null,
  account_id uuid not null,
  amount bigint not null,
  nonce bigint not null,
  signed_tx bytea,
  tx_hash bytea,
  state text not null,
  reason text,
  created_at timestamp with time zone default clock_timestamp() not null,
  changed_at timestamp with time zone default clock_timestamp() not null,
  constraint sweeps_pkey PRIMARY KEY (partition, id),
  constraint sweeps_amount_check CHECK (amount > 0),
  constraint sweeps_state_check CHECK (state = ANY (ARRAY['planned'::text, 'sent'::text, 'confirmed'::text, 'credited'::text, 'failed'::text])),
  constraint sweeps_tx_hash_check CHECK (length(tx_hash) = 32)
);
CREATE INDEX sweeps_of_account ON public.sweeps USING btree (account_id, nonce);
CREATE INDEX sweeps_open ON public.sweeps USING btree (account_id) WHERE (state = ANY (ARRAY['planned'::text, 'sent'::text, 'confirmed'::text]));

create table told_gauges (
  name text not null,
  value double precision not null,
  changed_at timestamp with time zone default clock_timestamp() not null,
  constraint told_gauges_pkey PRIMARY KEY (name)
);

create table tool_calls (
  partition smallint not null,
  request_id uuid not null,
  number smallint not null,
  kind text not null,
  status text not null,
  cost bigint not null,
  results integer not null,
  created_at timestamp with time zone not null,
  constraint tool_calls_pkey PRIMARY KEY (partition, request_id, number),
  constraint tool_calls_cost_check CHECK (cost >= 0),
  constraint tool_calls_kind_check CHECK (kind = ANY (ARRAY['search'::text, 'fetch'::text])),
  constraint tool_calls_number_check CHECK (number >= 1),
  constraint tool_calls_only_searches_cost CHECK (cost = 0 OR kind = 'search'::text AND status = 'completed'::text),
  constraint tool_calls_results_check CHECK (results >= 0),
  constraint tool_calls_status_check CHECK (status = ANY ('{completed,failed,max_tokens_spent,budget_spent}'::text[])) NOT VALID
);

create table usage_hours (
  partition smallint not null,
  account_id uuid not null,
  hour timestamp with time zone not null,
  key_id uuid not null,
  model text not null,
  succeeded integer default 0 not null,
  failed integer default 0 not null,
  cancelled integer default 0 not null,
  refused integer default 0 not null,
  quote bigint default 0 not null,
  charged bigint default 0 not null,
  search_cost bigint default 0 not null,
  search_calls bigint default 0 not null,
  fetch_calls bigint default 0 not null,
  prompt_tokens bigint default 0 not null,
  completion_tokens bigint default 0 not null,
  reasoning_tokens bigint default 0 not null,
  cached_tokens bigint default 0 not null,
  timed integer default 0 not null,
  first_token_ms bigint default 0 not null,
  total_ms bigint default 0 not null,
  constraint usage_hours_pkey PRIMARY KEY (partition, account_id, hour, key_id, model)
) with (fillfactor=70);

create table wallets (
  address text not null,
  partition smallint not null,
  account_id uuid not null,
  added_at timestamp with time zone default clock_timestamp() not null,
  last_used_at timestamp with time zone,
  constraint wallets_pkey PRIMARY KEY (address),
  constraint wallets_address_check CHECK (address ~ '^0x[0-9a-f]{40}$'::text)
);
CREATE INDEX wallets_of_account ON public.wallets USING btree (account_id);

create table withdrawals (
  partition smallint not null,
  id uuid not null,
  account_id uuid not null,
  amount bigint not null,
  credit_back bigint default 0 not null,
  nonce bigint,
  recipient text not null,
  state text not null,
  reason text,
  return_id text,
  rail_id text,
  tx_hash bytea,
  created_at timestamp with time zone default clock_timestamp() not null,
  changed_at timestamp with time zone default clock_timestamp() not null,
  fee_max bigint default 0 not null,
  fee bigint,
  signature bytea,
  returned_at timestamp with time zone,
  sent_at timestamp with time zone,
  constraint withdrawals_pkey PRIMARY KEY (partition, id),
  constraint withdrawals_amount_check CHECK (amount > 0),
  constraint withdrawals_check CHECK (credit_back >= 0 AND credit_back <= amount),
  constraint withdrawals_fee_within_its_maximum CHECK (fee >= 0 AND fee <= fee_max),
  constraint withdrawals_recipient_check CHECK (recipient ~ '^0x[0-9a-f]{40}$'::text),
  constraint withdrawals_signature_check CHECK (length(signature) = 65),
  constraint withdrawals_something_arrives CHECK (fee_max >= 0 AND fee_max < amount),
  constraint withdrawals_state_check CHECK (state = ANY (ARRAY['requested'::text, 'returning'::text, 'returned'::text, 'sent'::text, 'confirmed'::text, 'failed'::text])),
  constraint withdrawals_tx_hash_check CHECK (length(tx_hash) = 32)
);
CREATE INDEX withdrawals_confirmed ON public.withdrawals USING btree (changed_at) WHERE (state = 'confirmed'::text);
CREATE INDEX withdrawals_of_account ON public.withdrawals USING btree (account_id, created_at);
CREATE INDEX withdrawals_open ON public.withdrawals USING btree (changed_at) WHERE (state = ANY (ARRAY['requested'::text, 'returning'::text, 'returned'::text, 'sent'::text]));
comment on column withdrawals.returned_at is 'When the credit of it was back in the gateway.';
comment on column withdrawals.sent_at is 'When the order was first handed in to the gateway.';

CREATE OR REPLACE FUNCTION public.adjust_account(p_partition smallint, p_account_id uuid, p_id uuid, p_amount bigint, p_reason text, p_made_by text, p_request_id uuid DEFAULT NULL::uuid)
 RETURNS TABLE(decision text, room bigint)
 LANGUAGE plpgsql
AS $function$
declare
  v_account accounts;
  v_room    bigint;
  v_charged bigint;
  v_given   bigint;
begin
  perform 1 from accounts a where a.partition = p_partition and a.id = p_account_id for no key update;
  select * into v_account from accounts a where a.partition = p_partition and a.id = p_account_id;
  v_room := case when p_amount > 0 then greatest(0, v_account.charged - v_account.adjusted)
                 else least(v_account.adjusted, v_account.gateway + v_account.credit - v_account.extended) end;
  if p_request_id is not null then
    select r.charged into v_charged from requests r
      where r.partition = p_partition and r.id = p_request_id and r.account_id = p_account_id;
    select greatest(0, coalesce(sum(x.amount), 0)) into v_given from adjustments x
      where x.partition = p_partition and x.account_id = p_account_id and x.request_id = p_request_id;
    v_room := least(v_room, case when p_amount > 0 then coalesce(v_charged, 0) - v_given else v_given end);
  end if;
  if exists (select from adjustments x where x.partition = p_partition and x.id = p_id) then
    return query select 'stored', v_room;
  elsif exists (select from ledger_state l where l.frozen_at is not null) then
    return query select 'ledger_frozen', v_room;
  elsif v_account.id is null or abs(p_amount) > v_room then
    return query select 'exceeds_room', coalesce(v_room, 0);
  else
    insert into adjustments (partition, id, account_id, amount, reason, made_by, request_id)
      values (p_partition, p_id, p_account_id, p_amount, p_reason, p_made_by, p_request_id);
    update accounts a set credit = a.credit + p_amount, adjusted = a.adjusted + p_amount
      where a.partition = p_partition and a.id = p_account_id;
    return query select 'made', v_room - abs(p_amount);
  end if;
end $function$;

CREATE OR REPLACE FUNCTION public.advance_withdrawal(p_partition smallint, p_account_id uuid, p_id uuid, p_state text, p_return_id text, p_rail_id text, p_tx_hash bytea, p_reason text, p_fee bigint DEFAULT NULL::bigint, p_from text DEFAULT NULL::text)
 RETURNS boolean
 LANGUAGE plpgsql
AS $function$
declare
  v_withdrawal withdrawals;
  v_credit     bigint;
  v_fee        bigint;
begin
  perform 1 from accounts a where a.partition = p_partition and a.id = p_account_id for no key update;
  select * into v_withdrawal from withdrawals w
    where w.partition = p_partition and w.id = p_id and w.account_id = p_account_id and w.state not in ('confirmed', 'failed')
      and (p_from is null or w.state = p_from);
  if not found then
    return false;
  end if;
  update withdrawals w
    set state = p_state, return_id = coalesce(p_return_id, w.return_id), rail_id = coalesce(p_rail_id, w.rail_id),
        tx_hash = coalesce(p_tx_hash, w.tx_hash), reason = p_reason, changed_at = clock_timestamp(),
        returned_at = case when p_state = 'returned' then coalesce(w.returned_at, clock_timestamp()) else w.returned_at end,
        sent_at = case when p_state = 'sent' then coalesce(w.sent_at, clock_timestamp()) else w.sent_at end
    where w.partition = p_partition and w.id = p_id;
  if p_state = 'failed' then
    v_credit := case when v_withdrawal.state in ('requested', 'returning') then v_withdrawal.credit_back else 0 end;
    update withdrawals w set credit_back = w.credit_back - v_credit where w.partition = p_partition and w.id = p_id;
    update accounts a
      set gateway = a.gateway + v_withdrawal.amount - v_credit, credit = a.credit + v_credit,
          returned = a.returned - v_credit, withdrawn = a.withdrawn - v_withdrawal.amount
      where a.partition = p_partition and a.id = p_account_id;
  elsif p_state = 'confirmed' then
    v_fee := coalesce(p_fee, v_withdrawal.fee_max);
    update withdrawals w set fee = v_fee where w.partition = p_partition and w.id = p_id;
    update accounts a
      set gateway = a.gateway + v_withdrawal.fee_max - v_fee, withdrawn = a.withdrawn - v_withdrawal.fee_max + v_fee
      where a.partition = p_partition and a.id = p_account_id;
  end if;
  return true;
end $function$;

CREATE OR REPLACE FUNCTION public.checkpoint_requests(p_partition smallint, p_ids uuid[], p_prompt_tokens integer[], p_completion_tokens integer[])
 RETURNS void
 LANGUAGE sql
 SET enable_seqscan TO 'off'
 SET enable_nestloop TO 'off'
 SET enable_mergejoin TO 'off'
AS $function$
  insert into checkpoints (partition, id, prompt_tokens, completion_tokens)
    select p_partition, u.id, u.prompt_tokens, u.completion_tokens
      from unnest(p_ids, p_prompt_tokens, p_completion_tokens) as u (id, prompt_tokens, completion_tokens)
      join requests r on r.id = u.id
     where r.partition = p_partition and r.id = any (p_ids) and r.status = 'held'
  on conflict (partition, id) do update
    set prompt_tokens = greatest(checkpoints.prompt_tokens, excluded.prompt_tokens),
        completion_tokens = greatest(checkpoints.completion_tokens, excluded.completion_tokens)
$function$;

CREATE OR REPLACE FUNCTION public.claim_replay(p_partition smallint, p_account_id uuid, p_key_id uuid, p_key_hash bytea, p_body_hash bytea, p_request_id uuid, p_node uuid, p_attempt_hash bigint, p_answerless uuid)
 RETURNS TABLE(state text, attempt_id uuid, attempt_node uuid, attempt_answer text)
 LANGUAGE plpgsql
AS $function$
declare
  v_replay  replays;
  v_attempt requests;
  v_newest  requests;
  v_now     timestamptz;
begin
  loop
    insert into replays (partition, account_id, key_hash, body_hash, request_id, key_id, node, is_keyed)
      values (p_partition, p_account_id, p_key_hash, p_body_hash, p_request_id, p_key_id, p_node, p_attempt_hash is null)
      on conflict do nothing;
    select * into v_replay from replays p
      where p.partition = p_partition and p.account_id = p_account_id and p.key_hash = p_key_hash for update;
    -- Deleted between the two statements: the key is free again.
    exit when found;
  end loop;
  v_now := clock_timestamp();
  select * into v_attempt from requests r where r.partition = p_partition and r.id = v_replay.request_id;
  if p_attempt_hash is not null and (v_attempt.id is not null or v_replay.request_id = p_request_id) then
    select * into v_newest from requests r
      where r.partition = p_partition and r.account_id = p_account_id and r.key_id = p_key_id and r.body_hash = p_attempt_hash
        and r.status <> 'refused' and (r.ended_at is null or r.ended_at > v_now - interval '60 seconds')
      -- Not by id: that is by the clock of the node that made it.
      order by r.created_at desc, r.id desc limit 1;
    if coalesce(v_newest.id, p_request_id) <> v_replay.request_id then
      update replays p set request_id = coalesce(v_newest.id, p_request_id), node = coalesce(v_newest.node, p_node),
             answer = null, earlier_id = null, wanted_at = null, created_at = v_now
        where p.partition = p_partition and p.account_id = p_account_id and p.key_hash = p_key_hash
        returning * into v_replay;
      v_attempt := v_newest;
    end if;
  end if;
  if v_replay.request_id = p_request_id then
    return query select 'claimed', p_request_id, p_node, null::text;
  elsif v_replay.body_hash <> p_body_hash then
    return query select 'mismatch', v_replay.request_id, null::uuid, null::text;
  elsif v_replay.answer <> '' then
    return query select 'answered', v_replay.request_id, v_replay.node, v_replay.answer;
  -- The end of an attempt may be in the ledger a moment before its answer: as long as its node lives, the answer will come.
  elsif v_replay.answer is null and v_replay.request_id is distinct from p_answerless
        and (v_attempt.id is null or v_attempt.status in ('held', 'succeeded'))
        -- The caller knows about its own attempts, even when its lease lapsed for a moment.
        and (coalesce(v_replay.node, v_attempt.node) = p_node
             or exists (select from nodes n where n.id = coalesce(v_replay.node, v_attempt.node) and n.lease_until >= v_now)) then
    return query select 'running', v_replay.request_id, coalesce(v_replay.node, v_attempt.node), null::text;
  else
    update replays p set request_id = p_request_id, node = p_node, answer = null, wanted_at = null, created_at = v_now,
           earlier_id = case when v_attempt.status = 'cancelled' and not v_attempt.stream and v_attempt.charged > 0
                             then v_attempt.id else v_replay.earlier_id end
      where p.partition = p_partition and p.account_id = p_account_id and p.key_hash = p_key_hash;
    return query select 'claimed', p_request_id, p_node, null::text;
  end if;
end $function$;

CREATE OR REPLACE FUNCTION public.close_replay(p_partition smallint, p_account_id uuid, p_key_hash bytea, p_request_id uuid, p_answer text)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
declare
  v_replay  replays;
  v_own     bigint;
  v_earlier bigint;
begin
  select * into v_replay from replays p
    where p.partition = p_partition and p.account_id = p_account_id and p.key_hash = p_key_hash and p.request_id = p_request_id
    for update;
  if not found then
    return;
  end if;
  if p_answer <> '' then
    update replays p set answer = p_answer, wanted_at = null
      where p.partition = p_partition and p.account_id = p_account_id and p.key_hash = p_key_hash;
    return;
  end if;
  select r.charged into v_own from requests r where r.partition = p_partition and r.id = p_request_id;
  select r.charged into v_earlier from requests r where r.partition = p_partition and r.id = v_replay.earlier_id;
  if coalesce(v_earlier, 0) > coalesce(v_own, 0) then
    update replays p set request_id = v_replay.earlier_id, earlier_id = null, answer = '', wanted_at = null
      where p.partition = p_partition and p.account_id = p_account_id and p.key_hash = p_key_hash;
  elsif coalesce(v_own, 0) = 0 then
    delete from replays p where p.partition = p_partition and p.account_id = p_account_id and p.key_hash = p_key_hash;
  else
    update replays p set answer = '', earlier_id = null, wanted_at = null
      where p.partition = p_partition and p.account_id = p_account_id and p.key_hash = p_key_hash;
  end if;
end $function$;

CREATE OR REPLACE FUNCTION public.credit_deposit(p_partition smallint, p_id uuid, p_account_id uuid, p_amount bigint, p_source text)
 RETURNS boolean
 LANGUAGE plpgsql
AS $function$
begin
  perform 1 from accounts a where a.partition = p_partition and a.id = p_account_id for no key update;
  insert into deposits (partition, id, account_id, amount, source)
    values (p_partition, p_id, p_account_id, p_amount, p_source)
    on conflict do nothing;
  if not found then
    return false;
  end if;
  update accounts a set gateway = a.gateway + p_amount, deposited = a.deposited + p_amount
    where a.partition = p_partition and a.id = p_account_id;
  return true;
end $function$;

CREATE OR REPLACE FUNCTION public.end_requests(p_partition smallint, p_account_ids uuid[], p_ids uuid[], p_statuses text[], p_voids boolean[], p_charges bigint[], p_search_costs bigint[], p_search_calls smallint[], p_fetch_calls smallint[], p_prompt_tokens integer[], p_completion_tokens integer[], p_reasoning_tokens integer[], p_cached_tokens integer[], p_usage_sources text[], p_finish_reasons text[], p_error_codes text[], p_first_token_ms integer[], p_total_ms integer[])
 RETURNS TABLE(id uuid, ended_now boolean, status text, charged bigint, ended_at timestamp with time zone)
 LANGUAGE plpgsql
 SET enable_seqscan TO 'off'
 SET enable_nestloop TO 'off'
 SET enable_mergejoin TO 'off'
 SET lock_timeout TO '200ms'
AS $function$
declare
  v_now         timestamptz;
  -- The requests that are still held, and so end here.
  v_ids         uuid[];
  v_accounts    uuid[];
  v_keys        uuid[];
  v_key_windows timestamptz[];
  v_gateway     bigint[];
  v_credit      bigint[];
  v_held        bigint[];
  v_extended    bigint[];
  v_charged     bigint[];
  v_authorized  bigint[];
  v_nonces      bigint[];
  v_voids       boolean[];
  v_models      text[];
  v_created_at  timestamptz[];
  v_places      int[];
begin
  if cardinality(p_ids) <> (select count(distinct i) from unnest(p_ids) as i) then
    raise exception 'a request is named twice in one batch of ends';
  end if;

  perform 1 from accounts a
    where a.partition = p_partition and a.id = any (p_account_ids)
    order by a.id for no key update;

  v_now := clock_timestamp();

  -- Only requests of the locked accounts: another account's row could change under our feet.
  -- A void is the exact inverse of its hold; a charge returns what was not used as credit.
  select array_agg(r.id), array_agg(r.account_id), array_agg(r.key_id), array_agg(r.key_window),
         array_agg(case when e.void then r.authorized else 0 end),
         array_agg(case when e.void then r.from_credit else r.quote - e.charge end),
         array_agg(r.quote), array_agg(r.extended), array_agg(e.charge), array_agg(r.authorized), array_agg(r.nonce),
         array_agg(e.void), array_agg(r.model), array_agg(r.created_at), array_agg(e.place)
    into v_ids, v_accounts, v_keys, v_key_windows, v_gateway, v_credit, v_held, v_extended, v_charged, v_authorized,
         v_nonces, v_voids, v_models, v_created_at, v_places
    from requests r
    join unnest(p_ids, p_voids, p_charges) with ordinality as e (id, void, charge, place) on e.id = r.id
    where r.partition = p_partition and r.id = any (p_ids) and r.ended_at is null
      and r.account_id in (select a.id from unnest(p_account_ids) as a (id));

  update requests r
    set status = e.status, ended_at = v_now, voided = e.void, charged = e.charge, search_cost = e.search_cost,
        search_calls = e.search_calls, fetch_calls = e.fetch_calls, prompt_tokens = e.prompt_tokens,
        completion_tokens = e.completion_tokens, reasoning_tokens = e.reasoning_tokens,
        cached_tokens = e.cached_tokens, usage_source = e.usage_source, finish_reason = e.finish_reason,
        error_code = e.error_code, first_token_ms = e.first_token_ms, total_ms = e.total_ms
    from unnest(p_ids, p_statuses, p_voids, p_charges, p_search_costs, p_search_calls, p_fetch_calls, p_prompt_tokens,
                p_completion_tokens, p_reasoning_tokens, p_cached_tokens, p_usage_sources, p_finish_reasons,
                p_error_codes, p_first_token_ms, p_total_ms)
         as e (id, status, void, charge, search_cost, search_calls, fetch_calls, prompt_tokens, completion_tokens,
               reasoning_tokens, cached_tokens, usage_source, finish_reason, error_code, first_token_ms, total_ms)
    where r.partition = p_partition and r.id = any (v_ids) and r.id = e.id;

  update accounts a
    set gateway = a.gateway + s.gateway, credit = a.credit + s.credit, held = a.held - s.held,
        extended = a.extended - s.extended, authorized = a.authorized - s.gateway, charged = a.charged + s.charged,
        unsettled = a.unsettled + s.authorized - s.gateway
    from (
      -- What a void gives back to the gateway is what it had authorized.
      select u.id, sum(u.gateway) as gateway, sum(u.credit) as credit, sum(u.held) as held, sum(u.extended) as extended,
             sum(u.charged) as charged, sum(u.authorized) as authorized
        from unnest(v_accounts, v_gateway, v_credit, v_held, v_extended, v_charged, v_authorized)
             as u (id, gateway, credit, held, extended, charged, authorized)
        group by u.id
    ) s
    where a.partition = p_partition and a.id = any (p_account_ids) and a.id = s.id;

  update api_keys k
    set held = k.held - s.held, spent = k.spent + s.charged
    from (
      select u.id, u.key_window, sum(u.held + u.extended) as held, sum(u.charged) as charged
        from unnest(v_keys, v_key_windows, v_held, v_extended, v_charged) as u (id, key_window, held, extended, charged)
        group by u.id, u.key_window
    ) s
    where k.partition = p_partition and k.id = any (v_keys) and k.id = s.id and k.window_start = s.key_window;

  insert into settlements (partition, id, account_id, charged, value, nonce, authorized_at, state, ended_at, changed_at)
    select p_partition, u.id, u.account_id, u.charged,
           case when u.void then 0 else u.authorized end, case when u.void then null else u.nonce end, u.created_at,
           case when u.authorized = 0 then 'none' when u.void then 'voided' else 'allocated' end, v_now, v_now
      from unnest(v_ids, v_accounts, v_charged, v_authorized, v_nonces, v_voids, v_created_at)
           as u (id, account_id, charged, authorized, nonce, void, created_at);

  insert into usage_hours as h (partition, account_id, hour, key_id, model, succeeded, failed, cancelled, quote, charged,
                                search_cost, search_calls, fetch_calls, prompt_tokens, completion_tokens,
                                reasoning_tokens, cached_tokens, timed, first_token_ms, total_ms)
    select p_partition, u.account_id, date_trunc('hour', u.created_at, 'UTC'), u.key_id, u.model,
           count(*) filter (where p_statuses[u.place] = 'succeeded'), count(*) filter (where p_statuses[u.place] = 'failed'),
           count(*) filter (where p_statuses[u.place] = 'cancelled'), sum(u.quote), sum(u.charged),
           sum(p_search_costs[u.place]), sum(p_search_calls[u.place]), sum(p_fetch_calls[u.place]),
           coalesce(sum(p_prompt_tokens[u.place]), 0), coalesce(sum(p_completion_tokens[u.place]), 0),
           coalesce(sum(p_reasoning_tokens[u.place]), 0), coalesce(sum(p_cached_tokens[u.place]), 0),
           count(p_first_token_ms[u.place]), coalesce(sum(p_first_token_ms[u.place]), 0), coalesce(sum(p_total_ms[u.place]), 0)
      from unnest(v_accounts, v_keys, v_models, v_created_at, v_held, v_charged, v_places)
           as u (account_id, key_id, model, created_at, quote, charged, place)
     group by u.account_id, date_trunc('hour', u.created_at, 'UTC'), u.key_id, u.model
  on conflict (partition, account_id, hour, key_id, model) do update
    set succeeded = h.succeeded + excluded.succeeded, failed = h.failed + excluded.failed,
        cancelled = h.cancelled + excluded.cancelled, quote = h.quote + excluded.quote,
        charged = h.charged + excluded.charged, search_cost = h.search_cost + excluded.search_cost,
        search_calls = h.search_calls + excluded.search_calls, fetch_calls = h.fetch_calls + excluded.fetch_calls,
        prompt_tokens = h.prompt_tokens + excluded.prompt_tokens,
        completion_tokens = h.completion_tokens + excluded.completion_tokens,
        reasoning_tokens = h.reasoning_tokens + excluded.reasoning_tokens,
        cached_tokens = h.cached_tokens + excluded.cached_tokens, timed = h.timed + excluded.timed,
        first_token_ms = h.first_token_ms + excluded.first_token_ms, total_ms = h.total_ms + excluded.total_ms;

  -- As a rule all of them ended here, and what is stored is what was asked.
  if cardinality(v_ids) = cardinality(p_ids) then
    return query select u.id, true, u.status, u.charge, v_now from unnest(p_ids, p_statuses, p_charges) as u (id, status, charge);
    return;
  end if;

  return query
    select r.id, coalesce(r.id = any (v_ids), false), r.status, r.charged, r.ended_at
      from requests r where r.partition = p_partition and r.id = any (p_ids);
end $function$;

CREATE OR REPLACE FUNCTION public.extend_holds(p_partition smallint, p_node uuid, p_cap bigint, p_account_ids uuid[], p_key_ids uuid[], p_ids uuid[], p_account_of integer[], p_key_of integer[], p_totals bigint[])
 RETURNS TABLE(row_number integer, decision text)
 LANGUAGE plpgsql
 SET enable_seqscan TO 'off'
 SET enable_nestloop TO 'off'
 SET enable_mergejoin TO 'off'
 SET lock_timeout TO '200ms'
AS $function$
declare
  v_now       timestamptz;
  v_frozen    boolean;
  -- Accounts, in the order of p_account_ids.
  a_gateway   bigint[];
  a_credit    bigint[];
  a_held      bigint[];
  a_extended  bigint[];
  -- Keys, in the order of p_key_ids.
  k_limit     bigint[];
  k_window    timestamptz[];
  k_spent     bigint[];
  k_held      bigint[];
  -- Requests, in the order of p_ids; null where it is not an open request of this account and key.
  r_extended  bigint[];
  r_window    timestamptz[];
  r_decision  text[] := array_fill(null::text, array[cardinality(p_ids)]);
  v_a         int;
  v_k         int;
  v_more      bigint;
begin
  if cardinality(p_ids) <> (select count(distinct i) from unnest(p_ids) as i) then
    raise exception 'a request is named twice in one batch of extensions';
  end if;

  perform 1 from accounts a
    where a.partition = p_partition and a.id = any (p_account_ids)
    order by a.id for no key update;

  v_now := clock_timestamp();

  -- Requests of a node whose lease is dead may have been ended by others, or will be at any moment.
  if not exists (select from nodes n where n.id = p_node and n.lease_until >= v_now) then
    raise exception 'the lease of node % is dead', p_node using errcode = 'P0L01';
  end if;
  select l.frozen_at is not null into v_frozen from ledger_state l;

  select array_agg(s.gateway), array_agg(s.credit), array_agg(s.held), array_agg(s.extended)
    into a_gateway, a_credit, a_held, a_extended
    from (select a.gateway, a.credit, a.held, a.extended
            from unnest(p_account_ids) with ordinality as i (id, n)
            left join accounts a on a.partition = p_partition and a.id = any (p_account_ids) and a.id = i.id
            order by i.n) s;

  select array_agg(s.limit_amount), array_agg(s.window_start), array_agg(s.spent), array_agg(s.held)
    into k_limit, k_window, k_spent, k_held
    from (select k.limit_amount, k.window_start, k.spent, k.held
            from unnest(p_key_ids) with ordinality as i (id, n)
            left join api_keys k on k.partition = p_partition and k.id = any (p_key_ids) and k.id = i.id
            order by i.n) s;

  select array_agg(s.extended), array_agg(s.key_window)
    into r_extended, r_window
    from (select r.extended, r.key_window
            from unnest(p_ids, p_account_of, p_key_of) with ordinality as i (id, account_of, key_of, n)
            left join requests r on r.partition = p_partition and r.id = any (p_ids) and r.id = i.id and r.status = 'held'
                                and r.account_id = p_account_ids[i.account_of] and r.key_id = p_key_ids[i.key_of]
            order by i.n) s;

  for i in 1 .. cardinality(p_ids) loop
    v_a := p_account_of[i];
    v_k := p_key_of[i];
    v_more := p_totals[i] - r_extended[i];

    if r_extended[i] is null then
      r_decision[i] := 'ended';
    elsif v_more <= 0 then
      r_decision[i] := 'extended';
    elsif v_frozen then
      r_decision[i] := 'ledger_frozen';
    elsif k_limit[v_k] is not null
          and (k_window[v_k] <> r_window[i] or k_spent[v_k] + k_held[v_k] + v_more > k_limit[v_k]) then
      r_decision[i] := 'key_limit_exceeded';
    elsif v_more > a_gateway[v_a] + a_credit[v_a] - a_extended[v_a] then
      r_decision[i] := 'insufficient_balance';
    elsif a_held[v_a] + a_extended[v_a] + v_more > p_cap then
      r_decision[i] := 'in_flight_cap';
    else
      r_decision[i] := 'extended';
      r_extended[i] := p_totals[i];
      a_extended[v_a] := a_extended[v_a] + v_more;
      if k_window[v_k] = r_window[i] then
        k_held[v_k] := k_held[v_k] + v_more;
      end if;
    end if;
  end loop;

  update accounts a
    set extended = u.extended
    from unnest(p_account_ids, a_extended) as u (id, extended)
    where a.partition = p_partition and a.id = any (p_account_ids) and a.id = u.id and a.extended <> u.extended;

  update api_keys k
    set held = u.held
    from unnest(p_key_ids, k_held) as u (id, held)
    where k.partition = p_partition and k.id = any (p_key_ids) and k.id = u.id and k.held <> u.held;

  update requests r
    set extended = u.extended
    from unnest(p_ids, r_extended) as u (id, extended)
    where r.partition = p_partition and r.id = any (p_ids) and r.id = u.id and r.extended < u.extended;

  return query select u.n::int, u.decision from unnest(r_decision) with ordinality as u (decision, n);
end $function$;

CREATE OR REPLACE FUNCTION public.place_holds(p_partition smallint, p_node uuid, p_price_version text, p_cap bigint, p_account_ids uuid[], p_key_ids uuid[], p_ids uuid[], p_account_of integer[], p_key_of integer[], p_quotes bigint[], p_models text[], p_streams boolean[], p_max_tokens integer[], p_body_hashes bigint[])
 RETURNS TABLE(row_number integer, decision text, authorized bigint, from_credit bigint, nonce bigint, created_at timestamp with time zone, spendable bigint, in_flight bigint, limit_left bigint)
 LANGUAGE plpgsql
 SET enable_seqscan TO 'off'
 SET enable_nestloop TO 'off'
 SET enable_mergejoin TO 'off'
 SET lock_timeout TO '200ms'
AS $function$
declare
  v_now         timestamptz;
  v_frozen      boolean;
  v_unsettled_cap bigint;
  v_rows        int := cardinality(p_ids);
  v_stored      uuid[];
  -- Accounts, in the order of p_account_ids.
  a_gateway     bigint[];
  a_credit      bigint[];
  a_held        bigint[];
  a_extended    bigint[];
  a_nonce_next  bigint[];
  a_authorized  bigint[];
  a_unsettled   bigint[];
  a_suspended   boolean[];
  -- Keys, in the order of p_key_ids.
  k_account     uuid[];
  k_refused     text[];
  k_limit       bigint[];
  k_window      timestamptz[];
  k_spent       bigint[];
  k_held        bigint[];
  -- Decisions, in the order of p_ids.
  r_decision    text[] := array_fill(null::text, array[cardinality(p_ids)]);
  r_authorized  bigint[] := array_fill(0::bigint, array[cardinality(p_ids)]);
  r_from_credit bigint[] := array_fill(0::bigint, array[cardinality(p_ids)]);
  r_nonce       bigint[] := array_fill(null::bigint, array[cardinality(p_ids)]);
  r_spendable   bigint[] := array_fill(null::bigint, array[cardinality(p_ids)]);
  r_in_flight   bigint[] := array_fill(null::bigint, array[cardinality(p_ids)]);
  r_limit_left  bigint[] := array_fill(null::bigint, array[cardinality(p_ids)]);
  v_a           int;
  v_k           int;
  v_quote       bigint;
  v_spendable   bigint;
  v_from_credit bigint;
begin
  perform 1 from accounts a
    where a.partition = p_partition and a.id = any (p_account_ids)
    order by a.id for no key update;

  v_now := clock_timestamp();

  -- A node that slept past its lease must not hold: others would take its new requests for orphans.
  if not exists (select from nodes n where n.id = p_node and n.lease_until >= v_now) then
    raise exception 'the lease of node % is dead', p_node using errcode = 'P0L01';
  end if;
  select l.frozen_at is not null, l.unsettled_cap into v_frozen, v_unsettled_cap from ledger_state l;

  select array_agg(r.id) into v_stored from requests r where r.partition = p_partition and r.id = any (p_ids);

  select array_agg(s.gateway), array_agg(s.credit), array_agg(s.held), array_agg(s.extended), array_agg(s.nonce_next),
         array_agg(s.authorized), array_agg(s.unsettled), array_agg(s.suspended)
    into a_gateway, a_credit, a_held, a_extended, a_nonce_next, a_authorized, a_unsettled,
         a_suspended
    from (select a.gateway, a.credit, a.held, a.extended, a.nonce_next, a.authorized,
                 unsettled_charges(a.charged, a.adjusted, a.settled, a.returned) as unsettled,
                 a.suspended_at is not null as suspended
            from unnest(p_account_ids) with ordinality as i (id, n)
            left join accounts a on a.partition = p_partition and a.id = any (p_account_ids) and a.id = i.id
            order by i.n) s;

  select array_agg(s.account_id), array_agg(s.refused), array_agg(s.limit_amount),
         -- A clock that stepped back does not reopen a window that has begun.
         array_agg(greatest(s.window_start, s.window_now)),
         array_agg(case when s.window_start >= s.window_now then s.spent else 0 end),
         array_agg(case when s.window_start >= s.window_now then s.held else 0 end)
    into k_account, k_refused, k_limit, k_window, k_spent, k_held
    from (select k.account_id, k.limit_amount, k.window_start, k.spent, k.held,
                 window_start(k.limit_window, v_now) as window_now,
                 case when k.revoked_at <= v_now then 'api_key_revoked'
                      when k.expires_at <= v_now then 'api_key_expired' end as refused
            from unnest(p_key_ids) with ordinality as i (id, n)
            left join api_keys k on k.partition = p_partition and k.id = any (p_key_ids) and k.id = i.id
            order by i.n) s;

  for i in 1 .. v_rows loop
    v_a := p_account_of[i];
    v_k := p_key_of[i];
    v_quote := p_quotes[i];
    v_spendable := a_gateway[v_a] + a_credit[v_a] - a_extended[v_a];

    if v_stored is not null and p_ids[i] = any (v_stored) then
      r_decision[i] := 'stored';
    elsif v_frozen then
      r_decision[i] := 'ledger_frozen';
    elsif a_gateway[v_a] is null or k_account[v_k] is distinct from p_account_ids[v_a] then
      r_decision[i] := 'invalid_api_key';
    elsif k_refused[v_k] is not null then
      r_decision[i] := k_refused[v_k];
    elsif a_suspended[v_a] then
      r_decision[i] := 'account_suspended';
    elsif v_quote > p_cap then
      r_decision[i] := 'quote_exceeds_cap';
    elsif k_spent[v_k] + k_held[v_k] + v_quote > k_limit[v_k] then
      r_decision[i] := 'key_limit_exceeded';
    elsif v_quote > v_spendable then
      r_decision[i] := 'insufficient_balance';
    elsif a_held[v_a] + a_extended[v_a] + v_quote > p_cap then
      r_decision[i] := 'in_flight_cap';
    elsif a_unsettled[v_a] > v_unsettled_cap then
      r_decision[i] := 'settlement_delayed';
    else
      r_decision[i] := 'held';
      -- A debt is taken whole: least() of a negative credit and the quote is the debt itself.
      v_from_credit := least(a_credit[v_a], v_quote);
      r_from_credit[i] := v_from_credit;
      r_authorized[i] := v_quote - v_from_credit;
      if v_quote > v_from_credit then
        r_nonce[i] := a_nonce_next[v_a];
        a_nonce_next[v_a] := a_nonce_next[v_a] + 1;
      end if;
      a_gateway[v_a] := a_gateway[v_a] - v_quote + v_from_credit;
      a_credit[v_a] := a_credit[v_a] - v_from_credit;
      a_authorized[v_a] := a_authorized[v_a] + v_quote - v_from_credit;
      a_held[v_a] := a_held[v_a] + v_quote;
      k_held[v_k] := k_held[v_k] + v_quote;
      continue;
    end if;
    r_spendable[i] := v_spendable;
    r_in_flight[i] := a_held[v_a] + a_extended[v_a];
    r_limit_left[i] := k_limit[v_k] - k_spent[v_k] - k_held[v_k];
  end loop;

  update accounts a
    set gateway = u.gateway, credit = u.credit, held = u.held, nonce_next = u.nonce_next, authorized = u.authorized
    from unnest(p_account_ids, a_gateway, a_credit, a_held, a_nonce_next, a_authorized)
         as u (id, gateway, credit, held, nonce_next, authorized)
    where a.partition = p_partition and a.id = any (p_account_ids) and a.id = u.id
      and (a.held <> u.held or a.credit <> u.credit);

  update api_keys k
    set window_start = u.window_start, spent = u.spent, held = u.held, last_used_at = v_now
    from unnest(p_key_ids, k_window, k_spent, k_held) as u (id, window_start, spent, held)
    where k.partition = p_partition and k.id = any (p_key_ids) and k.id = u.id and u.held > 0;

  insert into requests (partition, id, account_id, key_id, node, status, model, stream, max_tokens, price_version,
                        body_hash, created_at, quote, from_credit, authorized, nonce, key_window)
    select p_partition, u.id, p_account_ids[u.account_of], p_key_ids[u.key_of], p_node, 'held', u.model, u.stream,
           u.max_tokens, p_price_version, u.body_hash, greatest(v_now, k_window[u.key_of]), u.quote, u.from_credit, u.authorized, u.nonce, k_window[u.key_of]
      from unnest(p_ids, p_account_of, p_key_of, p_models, p_streams, p_max_tokens, p_body_hashes, p_quotes, r_from_credit,
                  r_authorized, r_nonce, r_decision)
           as u (id, account_of, key_of, model, stream, max_tokens, body_hash, quote, from_credit, authorized, nonce,
                 decision)
      where u.decision = 'held';

  if v_stored is null then
    return query
      select u.n::int, u.decision, u.authorized, u.from_credit, u.nonce, greatest(v_now, k_window[u.key_of]), u.spendable,
             u.in_flight, u.limit_left
        from unnest(p_key_of, r_decision, r_authorized, r_from_credit, r_nonce, r_spendable, r_in_flight, r_limit_left)
             with ordinality
             as u (key_of, decision, authorized, from_credit, nonce, spendable, in_flight, limit_left, n);
  else
    return query
      select u.n::int, coalesce(r.status, u.decision), coalesce(r.authorized, u.authorized),
             coalesce(r.from_credit, u.from_credit), coalesce(r.nonce, u.nonce), coalesce(r.created_at, greatest(v_now, k_window[u.key_of])),
             u.spendable, u.in_flight, u.limit_left
        from unnest(p_ids, p_key_of, r_decision, r_authorized, r_from_credit, r_nonce, r_spendable, r_in_flight, r_limit_left)
             with ordinality
             as u (id, key_of, decision, authorized, from_credit, nonce, spendable, in_flight, limit_left, n)
        left join requests r on r.partition = p_partition and r.id = any (v_stored) and r.id = u.id;
  end if;
end $function$;

CREATE OR REPLACE FUNCTION public.record_refusals(p_partition smallint, p_node uuid, p_ids uuid[], p_account_ids uuid[], p_key_ids uuid[], p_models text[], p_streams boolean[], p_max_tokens integer[], p_error_codes text[])
 RETURNS void
 LANGUAGE plpgsql
 SET lock_timeout TO '200ms'
AS $function$
declare
  v_minute   timestamptz := date_trunc('minute', clock_timestamp());
  v_places   int[];
  v_accounts uuid[];
  v_keys     uuid[];
  v_models   text[];
begin
  perform 1 from accounts a
    where a.partition = p_partition and a.id = any (p_account_ids)
    order by a.id for no key update;

  -- A call whose reply was lost comes again: what has its row already is not counted twice.
  select array_agg(n.place) filter (where n.number + n.before <= 100), array_agg(n.account_id), array_agg(n.key_id),
         array_agg(n.model)
    into v_places, v_accounts, v_keys, v_models
    from (select u.place, u.account_id, u.key_id, coalesce(p.model, '') as model,
                 row_number() over (partition by u.key_id order by u.place) as number,
                 coalesce(case when k.refusals_from = v_minute then k.refusals end, 0) as before
            from unnest(p_ids, p_account_ids, p_key_ids, p_models) with ordinality as u (id, account_id, key_id, model, place)
            left join (select distinct x.model from prices x) p on p.model = u.model
            left join api_keys k on k.partition = p_partition and k.id = u.key_id
           where not exists (select from requests r where r.partition = p_partition and r.id = u.id)) n;

  insert into requests (partition, id, account_id, key_id, node, status, model, stream, max_tokens, error_code,
                        created_at, ended_at)
    select p_partition, u.id, u.account_id, u.key_id, p_node, 'refused', u.model, u.stream, u.max_tokens, u.error_code,
           clock_timestamp(), clock_timestamp()
      from unnest(p_ids, p_account_ids, p_key_ids, p_models, p_streams, p_max_tokens, p_error_codes) with ordinality
           as u (id, account_id, key_id, model, stream, max_tokens, error_code, place)
     where u.place = any (v_places)
  on conflict do nothing;

  insert into usage_hours as h (partition, account_id, hour, key_id, model, refused)
    select p_partition, u.account_id, date_trunc('hour', clock_timestamp(), 'UTC'), u.key_id, u.model, count(*)
      from unnest(v_accounts, v_keys, v_models) as u (account_id, key_id, model)
     group by u.account_id, u.key_id, u.model
  on conflict (partition, account_id, hour, key_id, model) do update set refused = h.refused + excluded.refused;

  update api_keys k
     set refusals = s.count + case when k.refusals_from = v_minute then k.refusals else 0 end, refusals_from = v_minute
    from (select u.id, count(*) as count from unnest(v_keys) as u (id) group by u.id) s
   where k.partition = p_partition and k.id = s.id;
end $function$;

CREATE OR REPLACE FUNCTION public.record_tool_calls(p_partition smallint, p_ids uuid[], p_numbers smallint[], p_kinds text[], p_statuses text[], p_costs bigint[], p_results integer[])
 RETURNS void
 LANGUAGE sql
 SET enable_seqscan TO 'off'
 SET enable_nestloop TO 'off'
 SET enable_mergejoin TO 'off'
AS $function$
  insert into tool_calls (partition, request_id, number, kind, status, cost, results, created_at)
    select p_partition, u.id, u.number, u.kind, u.status, u.cost, u.results, clock_timestamp()
      from unnest(p_ids, p_numbers, p_kinds, p_statuses, p_costs, p_results)
           as u (id, number, kind, status, cost, results)
      join requests r on r.id = u.id
     where r.partition = p_partition and r.id = any (p_ids) and r.status = 'held'
  on conflict do nothing
$function$;

CREATE OR REPLACE FUNCTION public.refund_attempt(p_partition smallint, p_account_id uuid, p_key_hash bytea, p_retry_id uuid)
 RETURNS bigint
 LANGUAGE plpgsql
AS $function$
declare
  v_request  requests;
  v_retry    requests;
  v_account  accounts;
  v_hour     timestamptz;
  v_requests bigint;
  v_refunds  bigint;
  v_back     bigint;
  v_given    bigint;
begin
  perform 1 from accounts a where a.partition = p_partition and a.id = p_account_id for no key update;
  select * into v_retry from requests r
    where r.partition = p_partition and r.id = p_retry_id and r.account_id = p_account_id and r.status = 'succeeded';
  select r.* into v_request from replays p
    join requests r on r.partition = p.partition and r.id = p.earlier_id
    where p.partition = p_partition and p.account_id = p_account_id and p.key_hash = p_key_hash and p.request_id = p_retry_id
      and r.account_id = p_account_id and r.key_id = v_retry.key_id and r.status = 'cancelled' and not r.stream
      and r.error_code is distinct from 'superseded';
  if v_retry.id is null or v_request.id is null or least(v_request.charged, v_retry.charged) = 0 then
    return 0;
  end if;
  v_back := least(v_request.charged, v_retry.charged);
  v_hour := date_trunc('hour', v_request.created_at, 'UTC');
  select coalesce(sum(h.succeeded + h.failed + h.cancelled), 0) into v_requests from usage_hours h
    where h.partition = p_partition and h.account_id = p_account_id and h.hour = v_hour;
  -- Ids are by the clocks of the nodes, so the range is wider than the hour.
  select count(*) into v_refunds from requests r
    where r.partition = p_partition and r.account_id = p_account_id and r.status = 'cancelled' and r.error_code = 'superseded'
      and date_trunc('hour', r.created_at, 'UTC') = v_hour
      and r.id >= rpad(lpad(to_hex((extract(epoch from v_hour - interval '1 hour') * 1000)::bigint), 12, '0'), 32, '0')::uuid;
  if v_refunds >= greatest(5, v_requests / 50) then
    return 0;
  end if;
  select * into v_account from accounts a where a.partition = p_partition and a.id = p_account_id;
  -- What an operator gave back of the same charge is not given twice.
  select coalesce(sum(x.amount), 0) into v_given from adjustments x
    where x.partition = p_partition and x.account_id = p_account_id and x.request_id = v_request.id;
  v_given := least(v_account.adjusted,
                   greatest(v_given - (v_request.charged - v_back), v_account.adjusted - (v_account.charged - v_back), 0));
  if v_given > 0 then
    insert into adjustments (partition, id, account_id, amount, reason, made_by, request_id)
      values (p_partition, gen_random_uuid(), p_account_id, -v_given,
              'the request was served again: its charge is refunded', 'service', v_request.id);
  end if;
  update requests r
    set charged = r.charged - v_back, search_cost = least(r.search_cost, r.charged - v_back), error_code = 'superseded'
    where r.partition = p_partition and r.id = v_request.id;
  update accounts a
    set credit = a.credit + v_back - v_given, charged = a.charged - v_back, adjusted = a.adjusted - v_given
    where a.partition = p_partition and a.id = p_account_id;
  update api_keys k set spent = k.spent - v_back
    where k.partition = p_partition and k.id = v_request.key_id and v_request.created_at >= k.window_start;
  update usage_hours h
    set charged = h.charged - v_back,
        search_cost = h.search_cost - v_request.search_cost + least(v_request.search_cost, v_request.charged - v_back)
    where h.partition = p_partition and h.account_id = p_account_id and h.key_id = v_request.key_id
      and h.hour = v_hour and h.model = v_request.model;
  insert into settlements (partition, id, revision, account_id, charged, state, ended_at, changed_at)
    values (p_partition, v_request.id, 1, p_account_id, v_request.charged - v_back, 'none', clock_timestamp(), clock_timestamp());
  return v_back - v_given;
end $function$;

CREATE OR REPLACE FUNCTION public.renew_lease(p_node uuid, p_lease_ms integer)
 RETURNS boolean
 LANGUAGE plpgsql
AS $function$
declare
  v_until timestamptz;
begin
  select lease_until into v_until from nodes where id = p_node for update;
  insert into nodes (id, lease_until) values (p_node, clock_timestamp() + p_lease_ms * interval '1 millisecond')
    on conflict (id) do update set lease_until = excluded.lease_until;
  return v_until is null or v_until >= clock_timestamp();
end $function$;

CREATE OR REPLACE FUNCTION public.request_withdrawal(p_partition smallint, p_account_id uuid, p_id uuid, p_amount bigint, p_recipient text, p_min bigint DEFAULT 100000)
 RETURNS TABLE(decision text, withdrawable bigint, available_at timestamp with time zone)
 LANGUAGE plpgsql
AS $function$
declare
  v_account      accounts;
  v_withdrawable bigint;
  v_fee_max      bigint;
  v_frozen       boolean;
  v_debt         bigint;
  v_credit_back  bigint;
  v_now          timestamptz;
  v_last_small   timestamptz;
begin
  perform 1 from accounts a where a.partition = p_partition and a.id = p_account_id for no key update;
  select * into v_account from accounts a where a.partition = p_partition and a.id = p_account_id;
  v_now := clock_timestamp();
  v_withdrawable := v_account.gateway + v_account.credit - v_account.extended;
  if exists (select from withdrawals w where w.partition = p_partition and w.id = p_id) then
    return query select 'stored', v_withdrawable, null::timestamptz;
    return;
  end if;
  select l.frozen_at is not null, l.withdrawal_fee_max into v_frozen, v_fee_max from ledger_state l;
  if v_frozen then
    return query select 'ledger_frozen', 0::bigint, null::timestamptz;
    return;
  end if;
  if p_amount > v_withdrawable then
    return query select 'insufficient_balance', v_withdrawable, null::timestamptz;
    return;
  end if;
  if p_amount <= v_fee_max then
    return query select 'below_fee', v_fee_max, null::timestamptz;
    return;
  end if;
  if p_amount < p_min and p_amount < v_withdrawable then
    return query select 'below_min', v_withdrawable, null::timestamptz;
    return;
  end if;
  if (select count(*) from withdrawals w where w.partition = p_partition and w.account_id = p_account_id
        and w.state in ('requested', 'returning', 'returned', 'sent')) >= 3 then
    return query select 'too_many_open', v_withdrawable, null::timestamptz;
    return;
  end if;
  if p_amount < p_min then
    select max(w.created_at) into v_last_small from withdrawals w
      where w.partition = p_partition and w.account_id = p_account_id and w.amount < p_min and w.state <> 'failed'
        and w.created_at > v_now - interval '24 hours';
    if v_last_small is not null then
      return query select 'small_too_soon', v_withdrawable, v_last_small + interval '24 hours';
      return;
    end if;
  end if;

  v_debt := greatest(0, -v_account.credit);
  v_credit_back := greatest(0, p_amount - (v_account.gateway - v_debt));
  if v_debt > 0 then
    insert into settlements (partition, id, account_id, charged, value, nonce, authorized_at, state, ended_at, changed_at)
      values (p_partition, p_id, p_account_id, 0, v_debt, v_account.nonce_next, v_now, 'allocated', v_now, v_now);
  end if;
  insert into withdrawals (partition, id, account_id, amount, fee_max, credit_back, nonce, recipient, state)
    values (p_partition, p_id, p_account_id, p_amount, v_fee_max, v_credit_back,
            case when v_credit_back > 0 then v_account.nonce_next + case when v_debt > 0 then 1 else 0 end end,
            p_recipient, 'requested');
  update accounts a
    set gateway = a.gateway - v_debt - (p_amount - v_credit_back), credit = a.credit + v_debt - v_credit_back,
        authorized = a.authorized + v_debt, unsettled = a.unsettled + v_debt,
        returned = a.returned + v_credit_back, withdrawn = a.withdrawn + p_amount,
        nonce_next = a.nonce_next + case when v_debt > 0 then 1 else 0 end + case when v_credit_back > 0 then 1 else 0 end
    where a.partition = p_partition and a.id = p_account_id;
  return query select 'requested', v_withdrawable - p_amount, null::timestamptz;
end $function$;

CREATE OR REPLACE FUNCTION public.settle_payments(p_partition smallint, p_account_ids uuid[], p_ids uuid[], p_states text[], p_rail_ids text[], p_batches bigint[], p_tx_hashes bytea[], p_roots bytea[], p_proofs bytea[], p_reasons text[], p_positions integer[] DEFAULT NULL::integer[], p_sizes integer[] DEFAULT NULL::integer[])
 RETURNS TABLE(id uuid, state text)
 LANGUAGE plpgsql
 SET enable_seqscan TO 'off'
 SET enable_nestloop TO 'off'
 SET enable_mergejoin TO 'off'
AS $function$
declare
  v_ids      uuid[];
  v_accounts uuid[];
  v_final    bigint[];
  v_failed   bigint[];
  v_settled  bigint[];
begin
  perform 1 from accounts a
    where a.partition = p_partition and a.id = any (p_account_ids)
    order by a.id for no key update;

  select array_agg(s.id), array_agg(s.account_id),
         array_agg(case when u.state in ('completed', 'failed') then s.value else 0 end),
         array_agg(case when u.state = 'failed' then s.value else 0 end),
         array_agg(case when u.state = 'completed' then s.value else 0 end)
    into v_ids, v_accounts, v_final, v_failed, v_settled
    from settlements s
    join unnest(p_ids, p_states) as u (id, state) on u.id = s.id
   where s.partition = p_partition and s.id = any (p_ids) and s.revision = 0 and s.account_id = any (p_account_ids)
     and s.state not in ('none', 'voided', 'completed', 'failed');

  update settlements s
    set state = u.state, rail_id = coalesce(u.rail_id, s.rail_id), batch = coalesce(u.batch, s.batch),
        tx_hash = coalesce(u.tx_hash, s.tx_hash), receipt_root = coalesce(u.root, s.receipt_root),
        receipt_proof = coalesce(u.proof, s.receipt_proof), reason = u.reason,
        batch_position = coalesce(u.position, s.batch_position), batch_size = coalesce(u.size, s.batch_size),
        changed_at = clock_timestamp()
    from unnest(p_ids, p_states, p_rail_ids, p_batches, p_tx_hashes, p_roots, p_proofs, p_reasons, p_positions, p_sizes)
         as u (id, state, rail_id, batch, tx_hash, root, proof, reason, position, size)
    where s.partition = p_partition and s.id = any (v_ids) and s.revision = 0 and s.id = u.id;

  update accounts a
    set unsettled = a.unsettled - t.final, gateway = a.gateway + t.failed, credit = a.credit - t.failed,
        authorized = a.authorized - t.failed, settled = a.settled + t.settled
    from (select u.id, sum(u.final) as final, sum(u.failed) as failed, sum(u.settled) as settled
            from unnest(v_accounts, v_final, v_failed, v_settled) as u (id, final, failed, settled)
           group by u.id having sum(u.final) > 0) t
    where a.partition = p_partition and a.id = any (p_account_ids) and a.id = t.id;

  return query select u.id, u.state from unnest(p_ids, p_states) as u (id, state) where u.id = any (v_ids);
end $function$;

CREATE OR REPLACE FUNCTION public.unsettled_charges(p_charged bigint, p_adjusted bigint, p_settled bigint, p_returned bigint)
 RETURNS bigint
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
AS $function$
  select greatest(0, p_charged - p_adjusted - greatest(0, p_settled - p_returned))
$function$;

CREATE OR REPLACE FUNCTION public.window_start(p_window text, p_at timestamp with time zone)
 RETURNS timestamp with time zone
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
AS $function$
  select case when p_window = 'lifetime' then '-infinity'::timestamptz
              else date_trunc(p_window, p_at at time zone 'UTC') at time zone 'UTC' end
$function$;
