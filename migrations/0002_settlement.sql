-- What follows the end of a request: its receipt and its payment on chain; and the ways of money in and out: deposits seen
-- on chain, withdrawals, payouts. Beside them running totals per account and per hour, kept in the transaction that moves
-- the money, so that neither an audit nor a chart has to read an account's whole history.

-- All totals are over the account's life. I1: deposited = gateway + authorized - returned + withdrawn.
-- I2: authorized - returned = charged + held + credit.
alter table accounts
  add column deposited         bigint not null default 0,
  add column authorized        bigint not null default 0, -- of requests that were not voided, and did not fail on chain
  add column returned          bigint not null default 0, -- credit that went back into the gateway
  add column withdrawn         bigint not null default 0,
  add column charged           bigint not null default 0,
  add column unsettled         bigint not null default 0 check (unsettled >= 0), -- authorized by ended requests, not yet final on chain
  add column address           text   check (address ~ '^0x[0-9a-f]{40}$'),      -- the deposit address; its key is the signer's
  add column owner_address     text   check (owner_address ~ '^0x[0-9a-f]{40}$'),
  add column owner_usable_from timestamptz;

update accounts a
  set deposited = (select coalesce(sum(d.amount), 0) from deposits d where d.partition = a.partition and d.account_id = a.id),
      authorized = r.authorized, charged = r.charged
  from (select x.partition, x.account_id, sum(x.authorized) filter (where not x.voided) as authorized, sum(x.charged) as charged
          from requests x group by x.partition, x.account_id) r
  where r.partition = a.partition and r.account_id = a.id;
update accounts a
  set deposited = (select coalesce(sum(d.amount), 0) from deposits d where d.partition = a.partition and d.account_id = a.id)
  where a.charged = 0;

create unique index accounts_by_address on accounts (partition, address);

-- How much of one account may be charged and not yet settled. Set when a service starts.
alter table ledger_state add column unsettled_cap bigint not null default 5000000 check (unsettled_cap > 0);

-- One row for each end of a request, written in the same transaction: the receipt it gets and the payment it owes. A
-- request whose charge was taken back has a second row, revision 1. A withdrawal that pays a debt first has one under its
-- own id. The receipt is numbered and hashed after the end, in the background, and the payment is submitted after that.
create table settlements (
  partition      smallint    not null,
  id             uuid        not null,
  revision       smallint    not null default 0,
  account_id     uuid        not null,
  charged        bigint      not null,
  value          bigint      not null default 0 check (value >= 0), -- of the authorization
  nonce          bigint,
  authorized_at  timestamptz,                                       -- the instant its window is reckoned from
  state          text        not null check (state in ('none', 'voided', 'allocated', 'signed', 'submitted', 'received',
                                                       'batched', 'confirmed', 'completed', 'failed', 'unknown')),
  reason         text,                                              -- why it failed
  rail_id        text,                                              -- the gateway's name for it
  batch          bigint,
  tx_hash        bytea       check (length(tx_hash) = 32),
  receipt_number bigint,
  receipt_hash   bytea       check (length(receipt_hash) = 32),
  receipt_root   bytea       check (length(receipt_root) = 32),     -- of its batch, as it stands on chain
  receipt_proof  bytea,                                             -- the hashes from the receipt up to the root
  signature      bytea,                                             -- of the receipt; made when it is first read
  ended_at       timestamptz not null,
  changed_at     timestamptz not null,
  primary key (partition, id, revision),
  constraint settlements_payment_has_nonce check ((value > 0) = (nonce is not null)),
  constraint settlements_nothing_to_pay check ((value = 0) = (state in ('none', 'voided')))
) with (fillfactor = 70);

-- Open requests of an account: the audit adds them up all the time.
create index requests_held on requests (account_id) where status = 'held';
drop index requests_open;

-- A row is in one of them at a time: the end of a request is on the hot path, and every index it enters costs.
create index settlements_without_receipt on settlements (ended_at) where receipt_number is null;
create index settlements_open on settlements (changed_at)
  where receipt_number is not null
    and state in ('allocated', 'signed', 'submitted', 'received', 'batched', 'confirmed', 'unknown');
create unique index settlements_receipts on settlements (partition, account_id, receipt_number)
  where receipt_number is not null;

-- USDC that arrived at a deposit address, as the chain's log has it; and the transaction that brings it into the gateway.
create table arrivals (
  partition    smallint    not null,
  account_id   uuid        not null,
  block        bigint      not null,
  log_index    integer     not null,
  tx_hash      bytea       not null check (length(tx_hash) = 32),
  sender       text        not null,
  amount       bigint      not null check (amount > 0),
  sweep_id     uuid,
  seen_at      timestamptz not null default clock_timestamp(),
  primary key (partition, account_id, block, log_index)
);

create table sweeps (
  partition  smallint    not null,
  id         uuid        not null,
  account_id uuid        not null,
  amount     bigint      not null check (amount > 0),
  nonce      bigint      not null,
  signed_tx  bytea,                                     -- what was broadcast; the same is sent again until its fate is known
  tx_hash    bytea       check (length(tx_hash) = 32),
  state      text        not null check (state in ('planned', 'sent', 'confirmed', 'credited', 'failed')),
  reason     text,
  created_at timestamptz not null default clock_timestamp(),
  changed_at timestamptz not null default clock_timestamp(),
  primary key (partition, id)
);
create index sweeps_open on sweeps (account_id) where state in ('planned', 'sent', 'confirmed');

alter table deposits
  add column tx_hash bytea check (length(tx_hash) = 32),
  add column block   bigint;

-- How far a watcher has read.
create table chain_cursors (
  name       text        primary key,
  block      bigint      not null,
  changed_at timestamptz not null default clock_timestamp()
);

-- `credit_back` is the part of the amount that was credit and goes into the gateway first, paid by the seller.
create table withdrawals (
  partition   smallint    not null,
  id          uuid        not null,
  account_id  uuid        not null,
  amount      bigint      not null check (amount > 0),
  credit_back bigint      not null default 0 check (credit_back between 0 and amount),
  nonce       bigint,                                    -- of the reverse authorization
  recipient   text        not null check (recipient ~ '^0x[0-9a-f]{40}$'),
  state       text        not null check (state in ('requested', 'returning', 'returned', 'sent', 'confirmed', 'failed')),
  reason      text,
  return_id   text,
  rail_id     text,
  tx_hash     bytea       check (length(tx_hash) = 32),
  created_at  timestamptz not null default clock_timestamp(),
  changed_at  timestamptz not null default clock_timestamp(),
  primary key (partition, id)
);
create index withdrawals_of_account on withdrawals (account_id, created_at);
create index withdrawals_open on withdrawals (changed_at) where state in ('requested', 'returning', 'returned', 'sent');

-- The seller's revenue on its way to the operator.
create table payouts (
  id         uuid        primary key,
  amount     bigint      not null check (amount > 0),
  recipient  text        not null,
  state      text        not null check (state in ('requested', 'sent', 'confirmed', 'failed')),
  reason     text,
  rail_id    text,
  tx_hash    bytea       check (length(tx_hash) = 32),
  created_at timestamptz not null default clock_timestamp(),
  changed_at timestamptz not null default clock_timestamp()
);

-- What the charts show: sums per hour of the requests' creation, kept in the transaction that ends them.
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
  timed             integer     not null default 0,  -- requests that have a time to the first token
  first_token_ms    bigint      not null default 0,  -- their sum
  total_ms          bigint      not null default 0,  -- the sum over all that ended
  primary key (partition, account_id, hour, key_id, model)
) with (fillfactor = 70);

insert into usage_hours
  select r.partition, r.account_id, date_trunc('hour', r.created_at, 'UTC'), r.key_id, coalesce(r.model, ''),
         count(*) filter (where r.status = 'succeeded'), count(*) filter (where r.status = 'failed'),
         count(*) filter (where r.status = 'cancelled'), count(*) filter (where r.status = 'refused'), sum(r.quote),
         sum(r.charged), sum(r.search_cost), sum(r.search_calls), sum(r.fetch_calls), coalesce(sum(r.prompt_tokens), 0),
         coalesce(sum(r.completion_tokens), 0), coalesce(sum(r.reasoning_tokens), 0), coalesce(sum(r.cached_tokens), 0),
         count(r.first_token_ms), coalesce(sum(r.first_token_ms), 0), coalesce(sum(r.total_ms), 0)
    from requests r where r.status <> 'held'
   group by r.partition, r.account_id, date_trunc('hour', r.created_at, 'UTC'), r.key_id, coalesce(r.model, '');

-- As in 0001, and: money that is charged and not yet settled is capped, and the account's total is kept.
create or replace function place_holds(
  p_partition smallint, p_node uuid, p_price_version text, p_cap bigint,
  p_account_ids uuid[], p_key_ids uuid[],
  p_ids uuid[], p_account_of int[], p_key_of int[], p_quotes bigint[], p_models text[], p_streams boolean[],
  p_max_tokens int[], p_body_hashes bigint[]
) returns table (
  row_number int, decision text, authorized bigint, from_credit bigint, nonce bigint, created_at timestamptz,
  spendable bigint, in_flight bigint, limit_left bigint
)
language plpgsql
-- Rows are fetched by primary key (`id = any`) and joined to the batch by hash. A planner left to itself guesses that an
-- array has ten rows and a young table none, and joins row by row: quadratic in the batch.
set enable_seqscan = off set enable_nestloop = off set enable_mergejoin = off
as $$
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
         array_agg(s.authorized), array_agg(s.unsettled)
    into a_gateway, a_credit, a_held, a_extended, a_nonce_next, a_authorized, a_unsettled
    from (select a.gateway, a.credit, a.held, a.extended, a.nonce_next, a.authorized, a.unsettled
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
    where a.partition = p_partition and a.id = any (p_account_ids) and a.id = u.id and a.held <> u.held;

  update api_keys k
    set window_start = u.window_start, spent = u.spent, held = u.held, last_used_at = v_now
    from unnest(p_key_ids, k_window, k_spent, k_held) as u (id, window_start, spent, held)
    where k.partition = p_partition and k.id = any (p_key_ids) and k.id = u.id and u.held > 0;

  insert into requests (partition, id, account_id, key_id, node, status, model, stream, max_tokens, price_version,
                        body_hash, created_at, quote, from_credit, authorized, nonce, key_window)
    select p_partition, u.id, p_account_ids[u.account_of], p_key_ids[u.key_of], p_node, 'held', u.model, u.stream,
           u.max_tokens, p_price_version, u.body_hash, v_now, u.quote, u.from_credit, u.authorized, u.nonce, k_window[u.key_of]
      from unnest(p_ids, p_account_of, p_key_of, p_models, p_streams, p_max_tokens, p_body_hashes, p_quotes, r_from_credit,
                  r_authorized, r_nonce, r_decision)
           as u (id, account_of, key_of, model, stream, max_tokens, body_hash, quote, from_credit, authorized, nonce,
                 decision)
      where u.decision = 'held';

  if v_stored is null then
    return query
      select u.n::int, u.decision, u.authorized, u.from_credit, u.nonce, v_now, u.spendable, u.in_flight, u.limit_left
        from unnest(r_decision, r_authorized, r_from_credit, r_nonce, r_spendable, r_in_flight, r_limit_left) with ordinality
             as u (decision, authorized, from_credit, nonce, spendable, in_flight, limit_left, n);
  else
    return query
      select u.n::int, coalesce(r.status, u.decision), coalesce(r.authorized, u.authorized),
             coalesce(r.from_credit, u.from_credit), coalesce(r.nonce, u.nonce), coalesce(r.created_at, v_now),
             u.spendable, u.in_flight, u.limit_left
        from unnest(p_ids, r_decision, r_authorized, r_from_credit, r_nonce, r_spendable, r_in_flight, r_limit_left)
             with ordinality
             as u (id, decision, authorized, from_credit, nonce, spendable, in_flight, limit_left, n)
        left join requests r on r.partition = p_partition and r.id = any (v_stored) and r.id = u.id;
  end if;
end $$;

-- As in 0001, and: every end leaves a row for its receipt and its payment, and is counted in its hour.
create or replace function end_requests(
  p_partition smallint, p_account_ids uuid[], p_ids uuid[],
  p_statuses text[], p_voids boolean[], p_charges bigint[], p_search_costs bigint[], p_search_calls smallint[],
  p_fetch_calls smallint[], p_prompt_tokens int[], p_completion_tokens int[], p_reasoning_tokens int[],
  p_cached_tokens int[], p_usage_sources text[], p_finish_reasons text[], p_error_codes text[], p_first_token_ms int[],
  p_total_ms int[]
) returns table (id uuid, ended_now boolean, status text, charged bigint, ended_at timestamptz)
language plpgsql
set enable_seqscan = off set enable_nestloop = off set enable_mergejoin = off
as $$
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
    where r.partition = p_partition and r.id = any (p_ids) and r.status = 'held' and r.account_id = any (p_account_ids);

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
end $$;

-- As in 0001, and: refusals are counted in their hour.
create or replace function record_refusals(
  p_partition smallint, p_node uuid, p_ids uuid[], p_account_ids uuid[], p_key_ids uuid[], p_models text[],
  p_streams boolean[], p_max_tokens int[], p_error_codes text[]
) returns void
language plpgsql as $$
declare
  v_accounts uuid[];
  v_keys     uuid[];
  v_models   text[];
begin
  perform 1 from accounts a
    where a.partition = p_partition and a.id = any (p_account_ids)
    order by a.id for no key update;

  -- A call whose reply was lost comes again: what is written already is not counted twice.
  select array_agg(u.account_id), array_agg(u.key_id), array_agg(coalesce(u.model, ''))
    into v_accounts, v_keys, v_models
    from unnest(p_ids, p_account_ids, p_key_ids, p_models) as u (id, account_id, key_id, model)
   where not exists (select from requests r where r.partition = p_partition and r.id = u.id);

  insert into requests (partition, id, account_id, key_id, node, status, model, stream, max_tokens, error_code,
                        created_at, ended_at)
    select p_partition, u.id, u.account_id, u.key_id, p_node, 'refused', u.model, u.stream, u.max_tokens, u.error_code,
           clock_timestamp(), clock_timestamp()
      from unnest(p_ids, p_account_ids, p_key_ids, p_models, p_streams, p_max_tokens, p_error_codes)
           as u (id, account_id, key_id, model, stream, max_tokens, error_code)
  on conflict do nothing;

  insert into usage_hours as h (partition, account_id, hour, key_id, model, refused)
    select p_partition, u.account_id, date_trunc('hour', clock_timestamp(), 'UTC'), u.key_id, u.model, count(*)
      from unnest(v_accounts, v_keys, v_models) as u (account_id, key_id, model)
     group by u.account_id, u.key_id, u.model
  on conflict (partition, account_id, hour, key_id, model) do update set refused = h.refused + excluded.refused;
end $$;

create or replace function credit_deposit(p_partition smallint, p_id uuid, p_account_id uuid, p_amount bigint, p_source text)
returns boolean
language plpgsql as $$
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
end $$;

-- As in 0001, and: the request gets a second receipt, which says that it costs nothing any more.
create or replace function refund_attempt(p_partition smallint, p_account_id uuid, p_id uuid) returns bigint
language plpgsql as $$
declare
  v_request requests;
begin
  perform 1 from accounts a where a.partition = p_partition and a.id = p_account_id for no key update;
  select * into v_request from requests r
    where r.partition = p_partition and r.id = p_id and r.account_id = p_account_id and r.status <> 'held' and r.charged > 0;
  if not found then
    return 0;
  end if;
  update requests r set charged = 0, search_cost = 0, error_code = 'superseded' where r.partition = p_partition and r.id = p_id;
  update accounts a set credit = a.credit + v_request.charged, charged = a.charged - v_request.charged
    where a.partition = p_partition and a.id = p_account_id;
  update api_keys k set spent = k.spent - v_request.charged
    where k.partition = p_partition and k.id = v_request.key_id and k.window_start = v_request.key_window;
  update usage_hours h set charged = h.charged - v_request.charged, search_cost = h.search_cost - v_request.search_cost
    where h.partition = p_partition and h.account_id = p_account_id and h.key_id = v_request.key_id
      and h.hour = date_trunc('hour', v_request.created_at, 'UTC') and h.model = v_request.model;
  insert into settlements (partition, id, revision, account_id, charged, state, ended_at, changed_at)
    values (p_partition, p_id, 1, p_account_id, 0, 'none', clock_timestamp(), clock_timestamp());
  return v_request.charged;
end $$;

-- Moves payments on to what the gateway says of them. A payment that is final leaves what its account has unsettled; one that
-- failed becomes a debt, covered by what its authorization had taken from the gateway and now gives back. Nothing that is
-- final changes again. Returns the ids that changed.
create function settle_payments(
  p_partition smallint, p_account_ids uuid[], p_ids uuid[], p_states text[], p_rail_ids text[], p_batches bigint[],
  p_tx_hashes bytea[], p_roots bytea[], p_proofs bytea[], p_reasons text[]
) returns table (id uuid, state text)
language plpgsql
set enable_seqscan = off set enable_nestloop = off set enable_mergejoin = off
as $$
declare
  v_ids      uuid[];
  v_accounts uuid[];
  v_final    bigint[];
  v_failed   bigint[];
begin
  perform 1 from accounts a
    where a.partition = p_partition and a.id = any (p_account_ids)
    order by a.id for no key update;

  select array_agg(s.id), array_agg(s.account_id),
         array_agg(case when u.state in ('completed', 'failed') then s.value else 0 end),
         array_agg(case when u.state = 'failed' then s.value else 0 end)
    into v_ids, v_accounts, v_final, v_failed
    from settlements s
    join unnest(p_ids, p_states) as u (id, state) on u.id = s.id
   where s.partition = p_partition and s.id = any (p_ids) and s.revision = 0 and s.account_id = any (p_account_ids)
     and s.state not in ('none', 'voided', 'completed', 'failed');

  update settlements s
    set state = u.state, rail_id = coalesce(u.rail_id, s.rail_id), batch = coalesce(u.batch, s.batch),
        tx_hash = coalesce(u.tx_hash, s.tx_hash), receipt_root = coalesce(u.root, s.receipt_root),
        receipt_proof = coalesce(u.proof, s.receipt_proof), reason = u.reason, changed_at = clock_timestamp()
    from unnest(p_ids, p_states, p_rail_ids, p_batches, p_tx_hashes, p_roots, p_proofs, p_reasons)
         as u (id, state, rail_id, batch, tx_hash, root, proof, reason)
    where s.partition = p_partition and s.id = any (v_ids) and s.revision = 0 and s.id = u.id;

  update accounts a
    set unsettled = a.unsettled - t.final, gateway = a.gateway + t.failed, credit = a.credit - t.failed,
        authorized = a.authorized - t.failed
    from (select u.id, sum(u.final) as final, sum(u.failed) as failed
            from unnest(v_accounts, v_final, v_failed) as u (id, final, failed)
           group by u.id having sum(u.final) > 0) t
    where a.partition = p_partition and a.id = any (p_account_ids) and a.id = t.id;

  return query select u.id, u.state from unnest(p_ids, p_states) as u (id, state) where u.id = any (v_ids);
end $$;

-- Begins a withdrawal: takes the amount out of what can be spent, a debt first, credit where the gateway has too little.
-- The id is the caller's: a repeated call gets the stored row. Refusals: 'insufficient_balance', 'ledger_frozen'.
create function request_withdrawal(p_partition smallint, p_account_id uuid, p_id uuid, p_amount bigint, p_recipient text)
returns table (decision text, withdrawable bigint)
language plpgsql as $$
declare
  v_account     accounts;
  v_debt        bigint;
  v_credit_back bigint;
  v_now         timestamptz;
begin
  perform 1 from accounts a where a.partition = p_partition and a.id = p_account_id for no key update;
  select * into v_account from accounts a where a.partition = p_partition and a.id = p_account_id;
  v_now := clock_timestamp();
  if exists (select from withdrawals w where w.partition = p_partition and w.id = p_id) then
    return query select 'stored', v_account.gateway + v_account.credit - v_account.extended;
    return;
  end if;
  if exists (select from ledger_state l where l.frozen_at is not null) then
    return query select 'ledger_frozen', 0::bigint;
    return;
  end if;
  if p_amount > v_account.gateway + v_account.credit - v_account.extended then
    return query select 'insufficient_balance', v_account.gateway + v_account.credit - v_account.extended;
    return;
  end if;

  v_debt := greatest(0, -v_account.credit);
  v_credit_back := greatest(0, p_amount - (v_account.gateway - v_debt));
  if v_debt > 0 then
    insert into settlements (partition, id, account_id, charged, value, nonce, authorized_at, state, ended_at, changed_at)
      values (p_partition, p_id, p_account_id, 0, v_debt, v_account.nonce_next, v_now, 'allocated', v_now, v_now);
  end if;
  insert into withdrawals (partition, id, account_id, amount, credit_back, nonce, recipient, state)
    values (p_partition, p_id, p_account_id, p_amount, v_credit_back,
            case when v_credit_back > 0 then v_account.nonce_next + case when v_debt > 0 then 1 else 0 end end,
            p_recipient, 'requested');
  update accounts a
    set gateway = a.gateway - v_debt - (p_amount - v_credit_back), credit = a.credit + v_debt - v_credit_back,
        authorized = a.authorized + v_debt, unsettled = a.unsettled + v_debt,
        returned = a.returned + v_credit_back, withdrawn = a.withdrawn + p_amount,
        nonce_next = a.nonce_next + case when v_debt > 0 then 1 else 0 end + case when v_credit_back > 0 then 1 else 0 end
    where a.partition = p_partition and a.id = p_account_id;
  return query select 'requested', v_account.gateway + v_account.credit - v_account.extended - p_amount;
end $$;

-- Moves a withdrawal on. When it fails its money comes back: credit that has not been returned yet becomes credit again.
-- A withdrawal that has ended stays as it is. Says whether anything changed.
create function advance_withdrawal(
  p_partition smallint, p_account_id uuid, p_id uuid, p_state text, p_return_id text, p_rail_id text, p_tx_hash bytea,
  p_reason text
) returns boolean
language plpgsql as $$
declare
  v_withdrawal withdrawals;
  v_credit     bigint;
begin
  perform 1 from accounts a where a.partition = p_partition and a.id = p_account_id for no key update;
  select * into v_withdrawal from withdrawals w
    where w.partition = p_partition and w.id = p_id and w.account_id = p_account_id and w.state not in ('confirmed', 'failed');
  if not found then
    return false;
  end if;
  update withdrawals w
    set state = p_state, return_id = coalesce(p_return_id, w.return_id), rail_id = coalesce(p_rail_id, w.rail_id),
        tx_hash = coalesce(p_tx_hash, w.tx_hash), reason = p_reason, changed_at = clock_timestamp()
    where w.partition = p_partition and w.id = p_id;
  if p_state = 'failed' then
    v_credit := case when v_withdrawal.state in ('requested', 'returning') then v_withdrawal.credit_back else 0 end;
    update withdrawals w set credit_back = w.credit_back - v_credit where w.partition = p_partition and w.id = p_id;
    update accounts a
      set gateway = a.gateway + v_withdrawal.amount - v_credit, credit = a.credit + v_credit,
          returned = a.returned - v_credit, withdrawn = a.withdrawn - v_withdrawal.amount
      where a.partition = p_partition and a.id = p_account_id;
  end if;
  return true;
end $$;

-- The last comparison of the books with the chain. One row.
create table solvency (
  single     boolean     primary key default true check (single),
  report     jsonb       not null,
  ok         boolean     not null,
  checked_at timestamptz not null default clock_timestamp()
);
