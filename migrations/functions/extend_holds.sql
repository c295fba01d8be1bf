-- Lets open requests cost more than their quotes. `total` is the whole amount that a request may cost beyond its quote, so a
-- repeated call extends nothing twice. Decided like holds, one after another in memory.
create function extend_holds(
  p_partition smallint, p_node uuid, p_lease_until timestamptz, p_cap bigint, p_account_ids uuid[], p_key_ids uuid[],
  p_calls extension_call[]
) returns table (place bigint, decision text)
language plpgsql
-- Planner switches: see place_holds.
set enable_seqscan = off set enable_nestloop = off set enable_mergejoin = off set lock_timeout = '200ms'
set plan_cache_mode = force_generic_plan
as $$
declare
  v_rules     hold_rules;
  v_accounts  account_numbers[];
  v_keys      key_numbers[];
  v_open      open_hold[];
  v_decisions text[] := array_fill(null::text, array[cardinality(p_calls)]);
  v_account   account_numbers;
  v_key       key_numbers;
  v_call      extension_call;
  v_hold      open_hold;
  v_more      bigint;
begin
  perform lock_accounts(p_partition, p_account_ids);
  -- Other nodes may have ended the requests of a node whose lease has expired, or may end them at any moment.
  perform require_lease(p_node, p_lease_until, clock_timestamp());
  v_rules := read_hold_rules(p_cap, true);
  v_accounts := read_accounts(p_partition, p_account_ids);
  v_keys := read_keys(p_partition, p_key_ids, null);
  v_open := find_open(p_partition, p_account_ids, p_key_ids, p_calls);

  for i in 1 .. cardinality(p_calls) loop
    v_call := p_calls[i];
    v_hold := v_open[i];
    v_more := v_call.total - v_hold.extended;
    v_account := v_accounts[v_call.account_of];
    v_key := v_keys[v_call.key_of];
    -- A key whose window has changed has no record of its spending in the request's window.
    if v_key.window_start <> v_hold.key_window then
      v_key.spent := v_key.limit_amount;
    end if;
    v_decisions[i] := case when v_more is null then 'ended' when v_more <= 0 then 'extended'
                           else decide_hold(v_rules, v_account, v_key, v_more) end;
    if v_decisions[i] = 'held' then
      v_decisions[i] := 'extended';
      v_open[i].extended := v_call.total;
      v_accounts[v_call.account_of].extended := v_account.extended + v_more;
      if v_key.window_start = v_hold.key_window then
        v_keys[v_call.key_of].held := v_key.held + v_more;
      end if;
    end if;
  end loop;

  update accounts a set extended = u.extended
    from (select p_account_ids[n.ordinality] as id, n.extended
            from unnest(v_accounts) with ordinality as n) u
    where a.partition = coalesce(p_partition, a.partition) and a.id = any (p_account_ids) and a.id = u.id and a.extended <> u.extended;

  update api_keys k set held = u.held
    from (select p_key_ids[n.ordinality] as id, n.window_start, n.held
            from unnest(v_keys) with ordinality as n) u
    where k.partition = coalesce(p_partition, k.partition) and k.id = any (p_key_ids) and k.id = u.id and k.window_start = u.window_start and k.held <> u.held;

  update holds h set extended = u.extended
    from rows from (unnest(p_calls), unnest(v_open)) as u
    where h.partition = coalesce(p_partition, h.partition) and h.id = any (array(select c.id from unnest(p_calls) as c)) and h.id = u.id and h.extended < u.extended;

  if exists (select from accounts a where a.partition = coalesce(p_partition, a.partition) and a.id = any (p_account_ids) and a.watched_until is not null) then
    perform write_events(p_partition, array(select row(i, 'account.changed', '{}')::event_call from unnest(p_account_ids) as i));
  end if;

  return query select d.place, d.decision from unnest(v_decisions) with ordinality as d (decision, place);
end $$;
