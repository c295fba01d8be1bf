-- The part of end_requests that writes events: request.ended for each request of an account whose webhook endpoints want that; else, for
-- an open live view, one event for all requests of the account. The accounts are locked, and count_ends has counted the events. Like
-- write_events it never fails the caller.
create function report_ended(p_partition smallint, p_account_ids uuid[], p_ended ended_hold[], p_calls end_call[]) returns void
language plpgsql as $$
declare
  v_wanted  uuid[];
  v_watched uuid[];
  v_now     timestamptz;
begin
  -- As in report_started.
  if not exists (select from accounts a where a.partition = coalesce(p_partition, a.partition)
                    and (a.event_types is not null or a.watched_until is not null)) then
    return;
  end if;
  select coalesce(array_agg(a.id) filter (where 'request.ended' = any (a.event_types)), '{}'),
         coalesce(array_agg(a.id) filter (where a.watched_until is not null and 'request.ended' <> all (coalesce(a.event_types, '{}'))),
                  '{}')
    into v_wanted, v_watched
    from accounts a
   where a.partition = coalesce(p_partition, a.partition) and a.id = any (p_account_ids)
     and (a.event_types is not null or a.watched_until is not null);
  if v_wanted = '{}' and v_watched = '{}' then
    return;
  end if;
  v_now := clock_timestamp();
  begin
    if v_wanted <> '{}' then
      insert into events (partition, account_id, number, id, type, data, created_at)
        select a.partition, a.id, a.events - count(*) over (partition by a.id) + row_number() over (partition by a.id order by e.place),
               gen_random_uuid(), 'request.ended', jsonb_build_object(
                 'id', 'req_' || replace(e.id::text, '-', ''), 'key_id', e.key_id, 'status', c.status, 'model', e.model,
                 'quote_atomic', e.quote::text, 'charged_atomic', c.charged::text, 'search_cost_atomic', c.search_cost::text,
                 'prompt_tokens', c.prompt_tokens, 'completion_tokens', c.completion_tokens, 'finish_reason', c.finish_reason,
                 'error_code', c.error_code, 'first_token_ms', c.first_token_ms, 'total_ms', c.total_ms), v_now
          from unnest(p_ended) as e join unnest(p_calls) as c on c.id = e.id
          join accounts a on a.partition = coalesce(p_partition, a.partition) and a.id = any (v_wanted) and a.id = e.account_id;
      perform wake_endpoints(p_partition, v_wanted, '{request.ended}', v_now);
    end if;
    if v_watched <> '{}' then
      insert into events (partition, account_id, number, id, type, data, created_at)
        select a.partition, a.id, a.events, gen_random_uuid(), 'requests.ended', live_requests(s.ids), v_now
          from (select e.account_id, array_agg(e.id order by e.place) as ids from unnest(p_ended) as e group by e.account_id) s
          join accounts a on a.partition = coalesce(p_partition, a.partition) and a.id = any (v_watched) and a.id = s.account_id;
    end if;
  exception when others then
    raise warning 'events of % account(s) were not written: %', cardinality(v_wanted || v_watched), sqlerrm;
  end;
end $$;
