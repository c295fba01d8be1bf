-- Ends a batch of requests: charges or voids them. A request ends once; a second call gets the stored end. A void is the exact
-- inverse of the hold; a charge returns the unused part as credit. A call that does not say whether it is void is decided by the
-- account's allowance. Every end is the next entry of its account.
create function end_requests(p_partition smallint, p_account_ids uuid[], p_calls end_call[])
returns table (id uuid, ended_now boolean, status text, charged bigint)
language plpgsql
-- Planner switches: see place_holds.
set enable_seqscan = off set enable_nestloop = off set enable_mergejoin = off set lock_timeout = '200ms'
set plan_cache_mode = force_generic_plan
as $$
declare
  v_now     timestamptz;
  v_ids     uuid[] := array(select c.id from unnest(p_calls) as c order by c.id);
  v_ended   ended_hold[];
  v_wanted  uuid[];
  v_watched uuid[];
begin
  if cardinality(v_ids) <> (select count(distinct i) from unnest(v_ids) as i) then
    raise exception 'a request is named twice in one batch of ends';
  end if;
  perform lock_accounts(p_partition, p_account_ids);
  v_now := clock_timestamp();
  if exists (select from unnest(p_calls) as c where c.voided is null) then
    p_calls := spare_cancels(p_partition, p_account_ids, p_calls, v_now);
  end if;

  -- Only requests of the locked accounts: a row of another account could change meanwhile.
  select array_agg(row(h.id, h.account_id, h.key_id, h.key_window, date_trunc('hour', h.created_at, 'UTC'), h.model, h.quote, h.extended,
                       h.authorized, h.from_credit, c.voided, c.charged, c.ordinality)::ended_hold)
    into v_ended
    from holds h
    join unnest(p_calls) with ordinality as c on c.id = h.id
    where h.partition = coalesce(p_partition, h.partition) and h.id = any (v_ids) and h.account_id in (select a.id from unnest(p_account_ids) as a (id));

  insert into requests (partition, id, account_id, key_id, node, status, model, stream, max_tokens, price_version, body_hash,
                        created_at, ended_at, entry, quote, from_credit, authorized, extended, voided, charged, search_cost,
                        search_calls, fetch_calls, tool_calls, prompt_tokens, completion_tokens, reasoning_tokens, cached_tokens,
                        usage_source, finish_reason, error_code, first_token_ms, total_ms, provider, attempts, upstream_cost)
    select h.partition, h.id, h.account_id, h.key_id, h.node, c.status, h.model, h.stream, h.max_tokens, h.price_version, h.body_hash,
           h.created_at, v_now, a.entries + row_number() over (partition by h.account_id order by e.place), h.quote, h.from_credit,
           h.authorized, h.extended, c.voided, c.charged, c.search_cost, c.search_calls, c.fetch_calls,
           -- A failover may have lost lines of the hold: the end brings all of them.
           coalesce(c.tool_calls || h.tool_calls, c.tool_calls, h.tool_calls), c.prompt_tokens, c.completion_tokens,
           c.reasoning_tokens, c.cached_tokens, c.usage_source, c.finish_reason, c.error_code, c.first_token_ms, c.total_ms,
            c.provider, c.attempts, c.upstream_cost
      from unnest(v_ended) as e
      join unnest(p_calls) as c on c.id = e.id
      join holds h on h.partition = coalesce(p_partition, h.partition) and h.id = any (v_ids) and h.id = e.id
      join accounts a on a.partition = coalesce(p_partition, a.partition) and a.id = any (p_account_ids) and a.id = e.account_id;

  select coalesce(array_agg(c.account_id) filter (where c.wants_each), '{}'),
         coalesce(array_agg(c.account_id) filter (where not c.wants_each), '{}')
    into v_wanted, v_watched from count_ends(p_partition, p_account_ids, v_ended, v_now) as c;
  perform count_usage(p_partition, v_ended, p_calls);
  delete from holds h where h.partition = coalesce(p_partition, h.partition) and h.id = any (array(select e.id from unnest(v_ended) as e));
  if v_wanted <> '{}' or v_watched <> '{}' then
    perform report_ended(p_partition, v_wanted, v_watched, v_ended);
  end if;

  -- In the usual case all of them ended here, and the stored ends are the requested ones.
  if cardinality(v_ended) = cardinality(p_calls) then
    return query select c.id, true, c.status, c.charged from unnest(p_calls) as c;
  else
    return query select r.id, coalesce(r.id in (select e.id from unnest(v_ended) as e), false), r.status, r.charged
                   from read_stored(p_partition, v_ids) r where r.status <> 'held';
  end if;
end $$;
