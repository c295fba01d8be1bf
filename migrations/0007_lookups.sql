-- An account is looked up by its id. With the partition first, this index would do for that too in the planner's eyes, which
-- then reads every account of the partition: a thousand for a batch of one. A partial index is for those alone who ask by address.
drop index accounts_by_address;
create unique index accounts_by_address on accounts (address, partition) where address is not null;

-- As in 0002, but the requests are looked up by their ids alone. While tables are young the planner takes them for empty, and
-- the index of open requests for the shortest way: it read whatever the accounts had open, and compared each with every id. A
-- condition on "ended_at" says the same and leaves it no choice; the accounts are a table to join, not a list to search.
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
end $$;
