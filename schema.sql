-- The schema after all migrations, each kind in alphabetical order. Generated: do not edit.

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
  constraint accounts_pkey PRIMARY KEY (partition, id),
  constraint accounts_extended_check CHECK (extended >= 0),
  constraint accounts_gateway_check CHECK (gateway >= 0),
  constraint accounts_held_check CHECK (held >= 0),
  constraint accounts_name_check CHECK (length(name) >= 1 AND length(name) <= 200),
  constraint accounts_not_overspent CHECK ((gateway + credit - extended) >= 0)
) with (fillfactor=50);

create table api_key_hashes (
  hash bytea not null,
  partition smallint not null,
  account_id uuid not null,
  key_id uuid not null,
  constraint api_key_hashes_pkey PRIMARY KEY (hash),
  constraint api_key_hashes_hash_check CHECK (length(hash) = 32)
);

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
  constraint api_keys_pkey PRIMARY KEY (partition, id),
  constraint api_keys_partition_account_id_fkey FOREIGN KEY (partition, account_id) REFERENCES accounts(partition, id),
  constraint api_keys_held_check CHECK (held >= 0),
  constraint api_keys_limit_amount_check CHECK (limit_amount >= 0),
  constraint api_keys_limit_window_check CHECK (limit_window = ANY (ARRAY['lifetime'::text, 'day'::text, 'week'::text, 'month'::text])),
  constraint api_keys_name_check CHECK (length(name) >= 1 AND length(name) <= 200),
  constraint api_keys_spent_check CHECK (spent >= 0)
) with (fillfactor=50);
CREATE INDEX api_keys_of_account ON public.api_keys USING btree (account_id);

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
  constraint deposits_pkey PRIMARY KEY (partition, id),
  constraint deposits_partition_account_id_fkey FOREIGN KEY (partition, account_id) REFERENCES accounts(partition, id),
  constraint deposits_amount_check CHECK (amount > 0)
);
CREATE INDEX deposits_of_account ON public.deposits USING btree (account_id);

create table ledger_state (
  single boolean default true not null,
  frozen_at timestamp with time zone,
  reason text,
  constraint ledger_state_pkey PRIMARY KEY (single),
  constraint ledger_state_single_check CHECK (single)
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
  constraint replays_pkey PRIMARY KEY (partition, account_id, key_hash),
  constraint replays_body_hash_check CHECK (length(body_hash) = 32),
  constraint replays_key_hash_check CHECK (length(key_hash) = 32)
);
CREATE INDEX replays_by_age ON public.replays USING btree (created_at);

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
  constraint requests_authorized_check CHECK (authorized >= 0),
  constraint requests_cached_tokens_check CHECK (cached_tokens >= 0),
  constraint requests_charge_within_hold CHECK (charged <= (quote + extended)),
  constraint requests_charged_check CHECK (charged >= 0),
  constraint requests_check CHECK (search_cost >= 0 AND search_cost <= charged),
  constraint requests_completion_tokens_check CHECK (completion_tokens >= 0),
  constraint requests_ended CHECK ((status = 'held'::text) = (ended_at IS NULL)),
  constraint requests_extended_check CHECK (extended >= 0),
  constraint requests_fetch_calls_check CHECK (fetch_calls >= 0),
  constraint requests_hold_is_whole CHECK (quote = (from_credit + authorized)),
  constraint requests_prompt_tokens_check CHECK (prompt_tokens >= 0),
  constraint requests_quote_check CHECK (quote >= 0),
  constraint requests_reasoning_tokens_check CHECK (reasoning_tokens >= 0),
  constraint requests_search_calls_check CHECK (search_calls >= 0),
  constraint requests_status_check CHECK (status = ANY (ARRAY['held'::text, 'succeeded'::text, 'failed'::text, 'cancelled'::text, 'refused'::text])),
  constraint requests_usage_source_check CHECK (usage_source = ANY (ARRAY['upstream'::text, 'counted'::text])),
  constraint requests_void_is_free CHECK (NOT voided OR charged = 0)
) with (fillfactor=80);
CREATE INDEX requests_of_account ON public.requests USING btree (account_id, id);
CREATE INDEX requests_of_body ON public.requests USING btree (account_id, body_hash) WHERE (body_hash IS NOT NULL);
CREATE INDEX requests_open ON public.requests USING btree (node) WHERE (status = 'held'::text);

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
  update accounts a set gateway = a.gateway + p_amount where a.partition = p_partition and a.id = p_account_id;
  return true;
end $function$;

CREATE OR REPLACE FUNCTION public.end_requests(p_partition smallint, p_account_ids uuid[], p_ids uuid[], p_statuses text[], p_voids boolean[], p_charges bigint[], p_search_costs bigint[], p_search_calls smallint[], p_fetch_calls smallint[], p_prompt_tokens integer[], p_completion_tokens integer[], p_reasoning_tokens integer[], p_cached_tokens integer[], p_usage_sources text[], p_finish_reasons text[], p_error_codes text[], p_first_token_ms integer[], p_total_ms integer[])
 RETURNS TABLE(id uuid, ended_now boolean, status text, charged bigint, ended_at timestamp with time zone)
 LANGUAGE plpgsql
 SET enable_seqscan TO 'off'
 SET enable_nestloop TO 'off'
 SET enable_mergejoin TO 'off'
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
         array_agg(r.quote), array_agg(r.extended), array_agg(e.charge)
    into v_ids, v_accounts, v_keys, v_key_windows, v_gateway, v_credit, v_held, v_extended, v_charged
    from requests r
    join unnest(p_ids, p_voids, p_charges) as e (id, void, charge) on e.id = r.id
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
        extended = a.extended - s.extended
    from (
      select u.id, sum(u.gateway) as gateway, sum(u.credit) as credit, sum(u.held) as held, sum(u.extended) as extended
        from unnest(v_accounts, v_gateway, v_credit, v_held, v_extended) as u (id, gateway, credit, held, extended)
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

  -- As a rule all of them ended here, and what is stored is what was asked.
  if cardinality(v_ids) = cardinality(p_ids) then
    return query select u.id, true, u.status, u.charge, v_now from unnest(p_ids, p_statuses, p_charges) as u (id, status, charge);
    return;
  end if;

  return query
    select r.id, coalesce(r.id = any (v_ids), false), r.status, r.charged, r.ended_at
      from requests r where r.partition = p_partition and r.id = any (p_ids);
end $function$;

CREATE OR REPLACE FUNCTION public.place_holds(p_partition smallint, p_node uuid, p_price_version text, p_cap bigint, p_account_ids uuid[], p_key_ids uuid[], p_ids uuid[], p_account_of integer[], p_key_of integer[], p_quotes bigint[], p_models text[], p_streams boolean[], p_max_tokens integer[], p_body_hashes bigint[])
 RETURNS TABLE(row_number integer, decision text, authorized bigint, from_credit bigint, nonce bigint, created_at timestamp with time zone, spendable bigint, in_flight bigint, limit_left bigint)
 LANGUAGE plpgsql
 SET enable_seqscan TO 'off'
 SET enable_nestloop TO 'off'
 SET enable_mergejoin TO 'off'
AS $function$
declare
  v_now         timestamptz;
  v_frozen      boolean;
  v_rows        int := cardinality(p_ids);
  v_stored      uuid[];
  -- Accounts, in the order of p_account_ids.
  a_gateway     bigint[];
  a_credit      bigint[];
  a_held        bigint[];
  a_extended    bigint[];
  a_nonce_next  bigint[];
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
  select l.frozen_at is not null into v_frozen from ledger_state l;

  select array_agg(r.id) into v_stored from requests r where r.partition = p_partition and r.id = any (p_ids);

  select array_agg(s.gateway), array_agg(s.credit), array_agg(s.held), array_agg(s.extended), array_agg(s.nonce_next)
    into a_gateway, a_credit, a_held, a_extended, a_nonce_next
    from (select a.gateway, a.credit, a.held, a.extended, a.nonce_next
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
      a_held[v_a] := a_held[v_a] + v_quote;
      k_held[v_k] := k_held[v_k] + v_quote;
      continue;
    end if;
    r_spendable[i] := v_spendable;
    r_in_flight[i] := a_held[v_a] + a_extended[v_a];
    r_limit_left[i] := k_limit[v_k] - k_spent[v_k] - k_held[v_k];
  end loop;

  update accounts a
    set gateway = u.gateway, credit = u.credit, held = u.held, nonce_next = u.nonce_next
    from unnest(p_account_ids, a_gateway, a_credit, a_held, a_nonce_next) as u (id, gateway, credit, held, nonce_next)
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
end $function$;

CREATE OR REPLACE FUNCTION public.record_refusals(p_partition smallint, p_node uuid, p_ids uuid[], p_account_ids uuid[], p_key_ids uuid[], p_models text[], p_streams boolean[], p_max_tokens integer[], p_error_codes text[])
 RETURNS void
 LANGUAGE sql
AS $function$
  insert into requests (partition, id, account_id, key_id, node, status, model, stream, max_tokens, error_code,
                        created_at, ended_at)
    select p_partition, u.id, u.account_id, u.key_id, p_node, 'refused', u.model, u.stream, u.max_tokens, u.error_code,
           clock_timestamp(), clock_timestamp()
      from unnest(p_ids, p_account_ids, p_key_ids, p_models, p_streams, p_max_tokens, p_error_codes)
           as u (id, account_id, key_id, model, stream, max_tokens, error_code)
  on conflict do nothing
$function$;

CREATE OR REPLACE FUNCTION public.refund_attempt(p_partition smallint, p_account_id uuid, p_id uuid)
 RETURNS bigint
 LANGUAGE plpgsql
AS $function$
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
  update accounts a set credit = a.credit + v_request.charged where a.partition = p_partition and a.id = p_account_id;
  update api_keys k set spent = k.spent - v_request.charged
    where k.partition = p_partition and k.id = v_request.key_id and k.window_start = v_request.key_window;
  return v_request.charged;
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

CREATE OR REPLACE FUNCTION public.window_start(p_window text, p_at timestamp with time zone)
 RETURNS timestamp with time zone
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
AS $function$
  select case when p_window = 'lifetime' then '-infinity'::timestamptz
              else date_trunc(p_window, p_at at time zone 'UTC') at time zone 'UTC' end
$function$;
