-- Writes the events that a webhook endpoint subscribes to, and all events of an account with an open live view, numbered per account
-- in the given order. An event that the table does not accept (its content, number, size, or a damaged index) is lost with a warning in the database's log,
-- and the change it reports is kept: events report money movements; they must never stop them. Every other error (a lock, a full disk,
-- a mistake in this function) fails the caller as well, which rolls back and tries again.
create function write_events(p_partition smallint, p_events event_call[]) returns void
language plpgsql as $$
declare
  v_now timestamptz;
  v_ids uuid[] := array(select distinct e.account_id from unnest(p_events) as e);
begin
  if not exists (select from accounts a where a.partition = coalesce(p_partition, a.partition) and a.id = any (v_ids)
                    and (a.event_types is not null or a.watched_until is not null)) then
    return;
  end if;
  perform lock_accounts(p_partition, v_ids);
  v_now := clock_timestamp();
  begin
    insert into events (partition, account_id, number, id, type, data, created_at)
      select a.partition, e.account_id, a.events + row_number() over (partition by e.account_id order by e.ordinality), gen_random_uuid(),
             e.type, e.data, v_now
        from unnest(p_events) with ordinality as e
        join accounts a on a.partition = coalesce(p_partition, a.partition) and a.id = any (v_ids) and a.id = e.account_id
       where a.watched_until is not null or e.type = any (a.event_types);
    update accounts a set events = a.events + s.count
      from (select e.account_id as id, count(*) as count
              from unnest(p_events) as e
              join accounts x on x.partition = coalesce(p_partition, x.partition) and x.id = any (v_ids) and x.id = e.account_id
             where x.watched_until is not null or e.type = any (x.event_types) group by e.account_id) s
      where a.partition = coalesce(p_partition, a.partition) and a.id = any (v_ids) and a.id = s.id;
    perform wake_endpoints(p_partition, v_ids, array(select distinct e.type from unnest(p_events) as e), v_now);
  exception when data_exception or integrity_constraint_violation or program_limit_exceeded or internal_error then
    raise warning 'events of % account(s) were not written: %', cardinality(v_ids), sqlerrm;
  end;
end $$;
