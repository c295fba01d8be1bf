-- The part of end_requests that writes events: request.ended for each request of an account whose webhook endpoints want that; else, for
-- an open live view, one event for all requests of the account. The accounts are locked, and count_ends has counted the events. It loses the
-- same events as write_events.
create function report_ended(p_partition smallint, p_wanted uuid[], p_watched uuid[], p_ended ended_hold[]) returns void
language plpgsql as $$
declare
  v_now timestamptz := clock_timestamp();
begin
  if p_wanted <> '{}' then
    insert into events (partition, account_id, number, id, type, created_at)
      select a.partition, a.id, a.events - count(*) over (partition by a.id) + row_number() over (partition by a.id order by e.place), e.id,
             'request.ended', v_now
        from unnest(p_ended) as e
        join accounts a on a.partition = coalesce(p_partition, a.partition) and a.id = any (p_wanted) and a.id = e.account_id;
    perform wake_endpoints(p_partition, p_wanted, '{request.ended}', v_now);
  end if;
  if p_watched <> '{}' then
    insert into events (partition, account_id, number, id, type, data, created_at)
      select a.partition, a.id, a.events, gen_random_uuid(), 'requests.ended', live_requests(s.ids), v_now
        from (select e.account_id, array_agg(e.id order by e.place) as ids from unnest(p_ended) as e group by e.account_id) s
        join accounts a on a.partition = coalesce(p_partition, a.partition) and a.id = any (p_watched) and a.id = s.account_id;
  end if;
exception when data_exception or integrity_constraint_violation or program_limit_exceeded or internal_error then
  raise warning 'events of % account(s) were not written: %', cardinality(p_wanted || p_watched), sqlerrm;
end $$;
