-- Two changes to what the ledger counts.
--
-- 1. A request counts towards its key's limit when it was created in the key's window, as the service promises. Until now each row
--    named its window (requests.key_window), and changing a key's window rewrote every row of the key under the account's lock.
--    Only open requests still need that column: end_requests compares it with the key's window.
-- 2. accounts.unsettled is what payments under way are worth: whole authorizations. What an account was charged and has not yet
--    paid on chain is less, because most of a quote comes back as credit. The cap is on the charges.

alter table api_keys add column window_changed_at timestamptz;
comment on column api_keys.window_changed_at is 'When limit_window was last changed: at most once a minute.';
comment on column requests.key_window is 'Of an open request: the window of its key that it is held in. Not kept up to date after its end.';

alter table accounts add column settled bigint not null default 0;
comment on column accounts.settled is 'Sum of the payments that are final on chain.';
comment on column accounts.unsettled is 'Sum of the payments under way: authorizations of ended requests, not final on chain.';
-- What was authorized is under way, final, or belongs to an open request.
update accounts a
   set settled = a.authorized - a.unsettled
               - (select coalesce(sum(r.authorized), 0) from requests r
                   where r.partition = a.partition and r.account_id = a.id and r.status = 'held')
 where a.authorized <> a.unsettled;

-- What final payments do not cover yet of what was charged. Payments that went back as credit (returned) cover nothing.
create function unsettled_charges(p_charged bigint, p_adjusted bigint, p_settled bigint, p_returned bigint) returns bigint
language sql immutable parallel safe as $$
  select greatest(0, p_charged - p_adjusted - greatest(0, p_settled - p_returned))
$$;

-- As in 0020, and: the cap is compared with charges; a clock that stepped back creates no request before its key's window.
create or replace function place_holds(p_partition smallint, p_node uuid, p_price_version text, p_cap bigint, p_account_ids uuid[], p_key_ids uuid[], p_ids uuid[], p_account_of integer[], p_key_of integer[], p_quotes bigint[], p_models text[], p_streams boolean[], p_max_tokens integer[], p_body_hashes bigint[])
 RETURNS TABLE(row_number integer, decision text, authorized bigint, from_credit bigint, nonce bigint, created_at timestamp with time zone, spendable bigint, in_flight bigint, limit_left bigint)
 LANGUAGE plpgsql
 SET enable_seqscan TO 'off'
 SET enable_nestloop TO 'off'
 SET enable_mergejoin TO 'off'
 SET lock_timeout TO '200ms'
AS $$
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
end $$;

-- As in 0019, and counts what became final.
create or replace function settle_payments(p_partition smallint, p_account_ids uuid[], p_ids uuid[], p_states text[], p_rail_ids text[], p_batches bigint[], p_tx_hashes bytea[], p_roots bytea[], p_proofs bytea[], p_reasons text[], p_positions integer[] DEFAULT NULL::integer[], p_sizes integer[] DEFAULT NULL::integer[])
 RETURNS TABLE(id uuid, state text)
 LANGUAGE plpgsql
 SET enable_seqscan TO 'off'
 SET enable_nestloop TO 'off'
 SET enable_mergejoin TO 'off'
AS $$
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
end $$;

-- As in 0009, and gives the key back what it spent in its window by the request's time.
create or replace function refund_attempt(p_partition smallint, p_account_id uuid, p_id uuid)
 RETURNS bigint
 LANGUAGE plpgsql
AS $$
declare
  v_request requests;
  v_account accounts;
  v_given   bigint;
begin
  perform 1 from accounts a where a.partition = p_partition and a.id = p_account_id for no key update;
  select * into v_request from requests r
    where r.partition = p_partition and r.id = p_id and r.account_id = p_account_id and r.status <> 'held' and r.charged > 0;
  if not found then
    return 0;
  end if;
  select * into v_account from accounts a where a.partition = p_partition and a.id = p_account_id;
  select coalesce(sum(x.amount), 0) into v_given from adjustments x
    where x.partition = p_partition and x.account_id = p_account_id and x.request_id = p_id;
  v_given := least(v_account.adjusted, greatest(v_given, v_account.adjusted - (v_account.charged - v_request.charged), 0));
  if v_given > 0 then
    insert into adjustments (partition, id, account_id, amount, reason, made_by, request_id)
      values (p_partition, gen_random_uuid(), p_account_id, -v_given,
              'the request was served again: its whole charge comes back', 'service', p_id);
  end if;
  update requests r set charged = 0, search_cost = 0, error_code = 'superseded' where r.partition = p_partition and r.id = p_id;
  update accounts a
    set credit = a.credit + v_request.charged - v_given, charged = a.charged - v_request.charged, adjusted = a.adjusted - v_given
    where a.partition = p_partition and a.id = p_account_id;
  update api_keys k set spent = k.spent - v_request.charged
    where k.partition = p_partition and k.id = v_request.key_id and v_request.created_at >= k.window_start;
  update usage_hours h set charged = h.charged - v_request.charged, search_cost = h.search_cost - v_request.search_cost
    where h.partition = p_partition and h.account_id = p_account_id and h.key_id = v_request.key_id
      and h.hour = date_trunc('hour', v_request.created_at, 'UTC') and h.model = v_request.model;
  insert into settlements (partition, id, revision, account_id, charged, state, ended_at, changed_at)
    values (p_partition, p_id, 1, p_account_id, 0, 'none', clock_timestamp(), clock_timestamp());
  return v_request.charged - v_given;
end $$;
