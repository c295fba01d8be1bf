-- Makes the webhook endpoints of these accounts due that subscribe to one of these types, after an event was written, and wakes the
-- deliverer for those that were idle (`db/exclusive.ts`). An endpoint that
-- pauses after failures stays paused. The caller has locked the accounts. An endpoint that the deliverer has locked is skipped, so that
-- requests never wait for the deliverer: it looks at the account again before it pauses the endpoint (`pause_endpoint`).
create function wake_endpoints(p_partition smallint, p_account_ids uuid[], p_types text[], p_now timestamptz) returns void
language plpgsql as $$
declare
  v_found record;
begin
  for v_found in
    select w.partition, w.id from webhook_endpoints w
     where w.partition = coalesce(p_partition, w.partition) and w.account_id = any (p_account_ids) and w.disabled_at is null
       and w.types && p_types and (w.due_at is null or (w.due_at > p_now and w.failures = 0))
       for no key update skip locked
  loop
    update webhook_endpoints w set due_at = p_now where w.partition = v_found.partition and w.id = v_found.id;
  end loop;
  -- Only for an endpoint that was idle: commits with a notification wait for each other. Not on Citus, which cannot prepare a transaction
  -- with one.
  if found then
    perform pg_notify('penny webhooks', '') where not exists (select from pg_extension x where x.extname = 'citus');
  end if;
end $$;
