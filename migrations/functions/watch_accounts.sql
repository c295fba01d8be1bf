-- For `p_seconds`, all events of these accounts are written, because a live view of them is open. Takes the accounts' locks, so that
-- every change either was visible before this call or is an event. `watched_from` stays the same as long as no event was left out.
create function watch_accounts(p_partition smallint, p_account_ids uuid[], p_seconds integer)
returns table (account_id uuid, last_event bigint, watched_from bigint)
language plpgsql
set lock_timeout = '2s'
as $$
declare
  v_now timestamptz;
begin
  perform lock_accounts(p_partition, p_account_ids);
  v_now := clock_timestamp();
  update accounts a
    set watched_from = case when a.watched_until is null then a.events else a.watched_from end,
        watched_until = v_now + p_seconds * interval '1 second'
    where a.partition = p_partition and a.id = any (p_account_ids);
  return query select a.id, a.events, a.watched_from from accounts a
    where a.partition = p_partition and a.id = any (p_account_ids);
end $$;
