-- Tools that the service runs for the model: what each call came to, and holds that grow while a request searches.

-- One row for each call that was run. Neither the query nor the address is kept: they are made of the customer's words.
create table tool_calls (
  partition  smallint    not null,
  request_id uuid        not null,
  number     smallint    not null check (number >= 1),
  kind       text        not null check (kind in ('search', 'fetch')),
  status     text        not null check (status in ('completed', 'failed')),
  cost       bigint      not null check (cost >= 0),
  results    integer     not null check (results >= 0),
  created_at timestamptz not null,
  primary key (partition, request_id, number),
  constraint tool_calls_only_searches_cost check (cost = 0 or (kind = 'search' and status = 'completed'))
);

-- Lets requests under way cost more than their quotes: `p_totals` is what each may cost beyond its quote from now on, all told.
-- A total and not an addition, so that a call whose reply was lost can be repeated and extends nothing twice.
--
-- Decided like `place_holds`, row by row over arrays in memory and under the same guards, but for one: a key that was revoked or
-- has expired since the request began lets it finish. What it may spend in all still holds. A key whose window has changed
-- since then no longer knows what it had spent in the request's own: where it has a limit nothing can be added there.
create function extend_holds(
  p_partition smallint, p_node uuid, p_cap bigint,
  p_account_ids uuid[], p_key_ids uuid[],
  p_ids uuid[], p_account_of int[], p_key_of int[], p_totals bigint[]
) returns table (row_number int, decision text)
language plpgsql
set enable_seqscan = off set enable_nestloop = off set enable_mergejoin = off
as $$
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
end $$;

-- Writes down calls that have come to their end, of requests that are still held: after a crash a search that ran is charged
-- together with what its request had delivered. A call that is repeated is written once.
create function record_tool_calls(
  p_partition smallint, p_ids uuid[], p_numbers smallint[], p_kinds text[], p_statuses text[], p_costs bigint[],
  p_results int[]
) returns void
language sql
set enable_seqscan = off set enable_nestloop = off set enable_mergejoin = off
as $$
  insert into tool_calls (partition, request_id, number, kind, status, cost, results, created_at)
    select p_partition, u.id, u.number, u.kind, u.status, u.cost, u.results, clock_timestamp()
      from unnest(p_ids, p_numbers, p_kinds, p_statuses, p_costs, p_results)
           as u (id, number, kind, status, cost, results)
      join requests r on r.id = u.id
     where r.partition = p_partition and r.id = any (p_ids) and r.status = 'held'
  on conflict do nothing
$$;
