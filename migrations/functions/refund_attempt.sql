-- Refunds the attempt that a retry replaced, once the retry was delivered: at most the retry's charge and the rest of the attempt's
-- charge, for at most 2 % of the account's requests in an hour (but five are always possible). Only buffered attempts whose client
-- left: output that was streamed to a client is never refunded. Returns the refund. Gives up on an account that another session keeps
-- locked.
create function refund_attempt(p_partition smallint, p_account_id uuid, p_key_hash bytea, p_retry_id uuid) returns bigint
language plpgsql
set lock_timeout = '200ms'
as $$
declare
  v_now     timestamptz;
  v_hour    timestamptz;
  v_account accounts;
  v_retry   requests;
  v_attempt requests;
  v_back    bigint;
begin
  -- Nearly every retry key has one attempt: nothing to lock for. The attempt that a request replaces is set when it claims its key, and
  -- only if it was buffered and cancelled.
  if not exists (select from replays p where p.partition = p_partition and p.account_id = p_account_id and p.key_hash = p_key_hash
                                         and p.request_id = p_retry_id and p.earlier_id is not null) then
    return 0;
  end if;
  perform lock_accounts(p_partition, array[p_account_id]);
  v_now := clock_timestamp();
  v_hour := date_trunc('hour', v_now, 'UTC');
  select * into v_account from accounts a where a.partition = p_partition and a.id = p_account_id;
  select * into v_retry from requests r
    where r.partition = p_partition and r.id = p_retry_id and r.account_id = p_account_id and r.status = 'succeeded';
  select r.* into v_attempt from replays p join requests r on r.partition = p_partition and r.id = p.earlier_id
    where p.partition = p_partition and p.account_id = p_account_id and p.key_hash = p_key_hash and p.request_id = p_retry_id
      and r.account_id = p_account_id and r.key_id = v_retry.key_id;
  if exists (select from adjustments x where x.partition = p_partition and x.request_id = v_attempt.id and x.kind = 'refund')
     or (select count(*) from adjustments x where x.partition = p_partition and x.account_id = p_account_id and x.kind = 'refund'
                                              and x.created_at >= v_hour)
        >= greatest(5, (select sum(h.succeeded + h.failed + h.cancelled) / 50 from usage_hours h
                         where h.partition = p_partition and h.account_id = p_account_id and h.hour = v_hour)) then
    return 0;
  end if;
  -- The part of the charge that an operator has already refunded is not refunded again.
  v_back := least(v_retry.charged, v_account.charged - v_account.given_back, v_attempt.charged
                  - (select coalesce(sum(x.amount), 0) from adjustments x where x.partition = p_partition and x.request_id = v_attempt.id));
  if v_retry.id is null or v_attempt.id is null or v_back <= 0 then
    return 0;
  end if;
  insert into adjustments (partition, id, account_id, entry, kind, amount, request_id, key_id, request_at, reason, made_by, created_at)
    values (p_partition, gen_random_uuid(), p_account_id, v_account.entries + 1, 'refund', v_back, v_attempt.id, v_attempt.key_id,
            v_attempt.created_at, 'A retry was delivered in place of this request.', 'service', v_now);
  update accounts a set credit = a.credit + v_back, given_back = a.given_back + v_back, entries = a.entries + 1
    where a.partition = p_partition and a.id = p_account_id;
  update api_keys k set spent = k.spent - v_back
    where k.partition = p_partition and k.id = v_attempt.key_id and v_attempt.created_at >= k.window_start;
  perform write_events(p_partition, array[row(p_account_id, 'account.changed', '{}')::event_call]);
  return v_back;
end $$;
