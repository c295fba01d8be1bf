-- Places a batch of holds. They are decided one after another in order of arrival, in memory, so that a refused hold does not count
-- against the others; then all are written together. Calls that the ledger has get the stored decision: a node that loses the reply
-- sends them again, and the network may deliver the first statement after the second one, even after the request has ended.
--
-- `p_account_ids` and `p_key_ids` are distinct; `account_of` and `key_of` of a call are positions in them. Without `p_partition` the
-- calls may be of any partitions: one PostgreSQL has all of them, and a batch over all costs as much as a batch of one.
create function place_holds(
  p_partition smallint, p_node uuid, p_lease_until timestamptz, p_price_version text, p_cap bigint, p_account_ids uuid[], p_key_ids uuid[],
  p_calls hold_call[]
) returns table (place bigint, decision text, authorized bigint, from_credit bigint, created_at timestamptz, spendable bigint,
                 in_flight bigint, limit_left bigint)
language plpgsql
-- Rows are found by primary key and joined to the batch by hash. The planner assumes that an array has ten rows and a new table
-- none, and would use a nested loop: quadratic in the batch. Every batch gets the same plan; without `plan_cache_mode` some statements
-- were planned again for each.
set enable_seqscan = off set enable_nestloop = off set enable_mergejoin = off set lock_timeout = '200ms'
set plan_cache_mode = force_generic_plan
as $$
declare
  v_now       timestamptz;
  v_rules     hold_rules;
  v_accounts  account_numbers[];
  v_keys      key_numbers[];
  v_stored    uuid[];
  v_decisions hold_decision[] := array_fill(null::hold_decision, array[cardinality(p_calls)]);
  v_account   account_numbers;
  v_key       key_numbers;
  v_call      hold_call;
  v_made      hold_decision;
begin
  perform lock_accounts(p_partition, p_account_ids);
  v_now := clock_timestamp();
  perform require_lease(p_node, p_lease_until, v_now);
  v_rules := read_hold_rules(p_cap, false);
  v_accounts := read_accounts(p_partition, p_account_ids);
  v_keys := read_keys(p_partition, p_key_ids, v_now);
  v_stored := find_stored(p_partition, array(select c.id from unnest(p_calls) as c order by c.id));

  for i in 1 .. cardinality(p_calls) loop
    v_call := p_calls[i];
    v_account := v_accounts[v_call.account_of];
    v_key := v_keys[v_call.key_of];
    if v_key.account_id <> p_account_ids[v_call.account_of] then
      v_key.account_id := null;
    end if;
    if v_call.id = any (v_stored) then
      v_made := row('stored', null, null, null, null, null, null);
    elsif v_call.options_version <> v_key.options_version then
      v_made := row('key_changed', null, null, null, null, null, null);
    else
      -- A debt is collected in full: with negative credit, the lesser of credit and quote is the debt itself.
      v_made := row(decide_hold(v_rules, v_account, v_key, v_call.quote), v_call.quote - least(v_account.credit, v_call.quote),
                    least(v_account.credit, v_call.quote), greatest(v_now, v_key.window_start),
                    v_account.gateway + v_account.credit - v_account.extended, v_account.held + v_account.extended,
                    v_key.limit_amount - v_key.spent - v_key.held);
    end if;
    v_decisions[i] := v_made;
    if v_made.decision = 'held' then
      v_account.gateway := v_account.gateway - v_made.authorized;
      v_account.credit := v_account.credit - v_made.from_credit;
      v_account.held := v_account.held + v_call.quote;
      v_accounts[v_call.account_of] := v_account;
      v_key.held := v_key.held + v_call.quote;
      v_keys[v_call.key_of] := v_key;
    end if;
  end loop;

  update accounts a set gateway = u.gateway, credit = u.credit, held = u.held, events = a.events + (a.watched_until is not null)::int
    from (select p_account_ids[n.ordinality] as id, n.gateway, n.credit, n.held
            from unnest(v_accounts) with ordinality as n) u
    where a.partition = coalesce(p_partition, a.partition) and a.id = any (p_account_ids) and a.id = u.id and (a.held <> u.held or a.credit <> u.credit);

  update api_keys k set window_start = u.window_start, spent = u.spent, held = u.held, last_used_at = v_now
    from (select p_key_ids[n.ordinality] as id, n.window_start, n.spent, n.held
            from unnest(v_keys) with ordinality as n) u
    where k.partition = coalesce(p_partition, k.partition) and k.id = any (p_key_ids) and k.id = u.id and u.held > 0;

  insert into holds (partition, id, account_id, key_id, node, model, stream, max_tokens, price_version, body_hash, created_at,
                     key_window, quote, from_credit, authorized)
    select coalesce(p_partition, partition_of(x.id)), x.id, p_account_ids[x.account_of], p_key_ids[x.key_of], p_node, x.model, x.stream, x.max_tokens,
           p_price_version, x.body_hash, x.created_at, (v_keys[x.key_of]).window_start, x.quote, x.from_credit, x.authorized
      from rows from (unnest(p_calls), unnest(v_decisions)) as x
     where x.decision = 'held';
  perform report_started(p_partition, p_account_ids, p_calls, v_decisions);
  return query
    select d.ordinality, d.decision, d.authorized, d.from_credit, d.created_at, d.spendable, d.in_flight, d.limit_left
      from unnest(v_decisions) with ordinality as d
     where d.decision <> 'stored';
  if v_stored <> '{}' then
    return query
      select c.ordinality, s.status, s.authorized, s.from_credit, s.created_at, null::bigint, null::bigint, null::bigint
        from unnest(p_calls) with ordinality as c
        join read_stored(p_partition, v_stored) s on s.id = c.id;
  end if;
end $$;
