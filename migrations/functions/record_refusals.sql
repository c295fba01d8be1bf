-- Logs refused requests: at most 100 a minute per key, and 1,000 per account or 100 if it never deposited, because keys and accounts
-- are free. The hourly sums count all of them. Models that are on no price list are counted without a name, so that a caller cannot
-- fill the table with names.
create function record_refusals(p_partition smallint, p_node uuid, p_account_ids uuid[], p_calls refusal_call[]) returns void
language plpgsql
set lock_timeout = '200ms'
as $$
declare
  v_now    timestamptz;
  v_minute timestamptz;
  v_stored uuid[];
  v_new    refusal_call[];
  v_logged refusal_call[];
begin
  perform lock_accounts(p_partition, p_account_ids);
  v_now := clock_timestamp();
  v_minute := date_trunc('minute', v_now);

  -- A call whose reply was lost is repeated: a refusal that already has its row is not counted twice.
  v_stored := find_stored(p_partition, array(select c.id from unnest(p_calls) as c order by c.id));
  select array_agg(c order by c.id) into v_new from unnest(p_calls) as c where c.id <> all (v_stored);

  -- What the keys of an account had logged of this minute is at most the sum of their counts, up to 100 each.
  select array_agg(row(n.id, n.account_id, n.key_id, n.model, n.stream, n.max_tokens, n.error_code)::refusal_call order by n.id)
    into v_logged
    from (select c.*, row_number() over (partition by c.account_id order by c.id) as of_account
            from (select x.*, row_number() over (partition by x.key_id order by x.id) as of_key from unnest(v_new) as x) c
            left join api_keys k on k.partition = coalesce(p_partition, k.partition) and k.id = c.key_id
           where c.of_key + case when k.refusals_from = v_minute then k.refusals else 0 end <= 100) n
    join accounts a on a.partition = coalesce(p_partition, a.partition) and a.id = any (p_account_ids) and a.id = n.account_id
    left join (select k.account_id as id, sum(least(k.refusals, 100)) as count from api_keys k
                where k.partition = coalesce(p_partition, k.partition) and k.account_id = any (p_account_ids) and k.refusals_from = v_minute
                group by k.account_id) s on s.id = n.account_id
   where n.of_account + coalesce(s.count, 0) <= case when a.deposited > 0 then 1000 else 100 end;

  insert into requests (partition, id, account_id, key_id, node, status, model, stream, max_tokens, error_code, created_at, ended_at)
    select coalesce(p_partition, partition_of(n.id)), n.id, n.account_id, n.key_id, p_node, 'refused', n.model, n.stream, n.max_tokens, n.error_code, v_now, v_now
      from unnest(v_logged) as n
  on conflict do nothing;

  insert into usage_hours as h (partition, account_id, hour, key_id, model, refused)
    select coalesce(p_partition, min(partition_of(c.id))), c.account_id, date_trunc('hour', v_now, 'UTC'), c.key_id, coalesce(p.model, ''), count(*)
      from unnest(v_new) as c left join (select distinct x.model from prices x) p on p.model = c.model
     group by c.account_id, c.key_id, coalesce(p.model, '')
  on conflict (partition, account_id, hour, key_id, model, provider) do update set refused = h.refused + excluded.refused;

  update api_keys k
    set refusals = s.count + case when k.refusals_from = v_minute then k.refusals else 0 end, refusals_from = v_minute
    from (select c.key_id as id, count(*) as count from unnest(v_new) as c group by c.key_id) s
    where k.partition = coalesce(p_partition, k.partition) and k.id = s.id;

  if exists (select from accounts a where a.partition = coalesce(p_partition, a.partition) and a.id = any (p_account_ids)
                and (a.event_types is not null or a.watched_until is not null)) then
    perform write_events(p_partition, array(
      select row(c.account_id, 'request.refused', jsonb_build_object('id', 'req_' || replace(c.id::text, '-', ''), 'key_id', c.key_id,
               'model', c.model, 'error_code', c.error_code))::event_call
        from unnest(v_logged) as c order by c.id));
    perform report_limits_reached(p_partition, array(select distinct c.key_id from unnest(v_new) as c
                                                    where c.error_code = 'key_limit_exceeded'), v_now);
  end if;
end $$;
