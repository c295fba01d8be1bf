-- Stops writing events for live views that have ended, and deletes their events that no webhook endpoint subscribes to.
create function unwatch_accounts(p_partition smallint, p_account_ids uuid[]) returns void
language plpgsql
set lock_timeout = '2s'
as $$
declare
  v_now  timestamptz;
  v_over uuid[];
begin
  perform lock_accounts(p_partition, p_account_ids);
  v_now := clock_timestamp();
  v_over := array(select a.id from accounts a where a.partition = p_partition and a.id = any (p_account_ids) and a.watched_until <= v_now);
  update accounts a set watched_until = null where a.partition = p_partition and a.id = any (v_over);
  delete from events e using accounts a
    where e.partition = p_partition and e.account_id = a.id and a.partition = p_partition and a.id = any (v_over) and a.event_types is null;
end $$;
