-- Pauses a webhook endpoint that has nothing to send: until its next delivery is due or, without one, until an event is written. Holds
-- the account's lock, so an event is either seen here or wakes the endpoint. `p_seen` is the account's last event that the deliverer
-- has looked at; null: too many deliveries wait, so new events have to wait too. Events do not wake an endpoint whose last delivery
-- failed, so it pauses for `p_pause_ms` at most.
create function pause_endpoint(p_partition smallint, p_account_id uuid, p_endpoint_id uuid, p_seen bigint, p_pause_ms integer) returns void
language plpgsql
set lock_timeout = '200ms'
as $$
declare
  v_latest timestamptz;
  v_due    timestamptz;
begin
  perform lock_accounts(p_partition, array[p_account_id]);
  if exists (select from accounts a where a.partition = p_partition and a.id = p_account_id and a.events > p_seen) then
    return;
  end if;
  v_latest := clock_timestamp() + p_pause_ms * interval '1 millisecond';
  v_due := (select min(d.due_at) from webhook_deliveries d
             where d.partition = p_partition and d.endpoint_id = p_endpoint_id and d.state = 'waiting');
  update webhook_endpoints w
    set sent_to = greatest(w.sent_to, p_seen),
        due_at = case when w.failures > 0 and v_due > v_latest then v_latest else v_due end
    where w.partition = p_partition and w.id = p_endpoint_id;
exception when lock_not_available then
  -- The endpoint stays due, so the deliverer looks again.
  return;
end $$;
