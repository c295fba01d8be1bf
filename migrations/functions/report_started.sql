-- The part of place_holds that tells open live views: one event for all new requests of an account. The accounts are locked, and their
-- updates have counted the event. It loses the same events as write_events.
create function report_started(p_partition smallint, p_account_ids uuid[], p_calls hold_call[], p_decisions hold_decision[]) returns void
language plpgsql as $$
declare
  v_watched uuid[];
  v_now     timestamptz;
begin
  -- Usually no account is watched. A check per account would cost an index lookup each.
  if not exists (select from accounts a where a.partition = coalesce(p_partition, a.partition) and a.watched_until is not null) then
    return;
  end if;
  v_watched := array(select a.id from accounts a
                      where a.partition = coalesce(p_partition, a.partition) and a.id = any (p_account_ids)
                        and a.watched_until is not null);
  if v_watched = '{}' then
    return;
  end if;
  v_now := clock_timestamp();
  begin
    insert into events (partition, account_id, number, id, type, data, created_at)
      select a.partition, a.id, a.events, gen_random_uuid(), 'requests.started', live_requests(s.ids), v_now
        from (select p_account_ids[x.account_of] as account_id, array_agg(x.id order by x.ordinality) as ids
                from rows from (unnest(p_calls), unnest(p_decisions)) with ordinality as x
               -- A hold of nothing changes no account.
               where x.decision = 'held' and x.quote > 0 group by x.account_of) s
        join accounts a on a.partition = coalesce(p_partition, a.partition) and a.id = any (v_watched) and a.id = s.account_id;
  exception when data_exception or integrity_constraint_violation or program_limit_exceeded or internal_error then
    raise warning 'events of % account(s) were not written: %', cardinality(v_watched), sqlerrm;
  end;
end $$;
