-- A retry gets the same answer, never a second one for the price of the first (docs/decisions/0012).

-- Attempts that SDK retries find by API key and body are claimed like those with an Idempotency-Key.
alter table replays
  add column key_id     uuid,
  add column node       uuid,
  add column earlier_id uuid,
  add column wanted_at  timestamptz,
  add column is_keyed   boolean not null default true;
comment on column replays.key_id is 'API key of the request. An Idempotency-Key is valid for one API key.';
comment on column replays.node is 'Node that serves the request. Null in rows that were written before this column existed.';
comment on column replays.earlier_id is 'Attempt that this request replaces: part of its charge is refunded when this request is delivered.';
comment on column replays.wanted_at is 'Last time a retry on another node asked for the answer.';
comment on column replays.is_keyed is 'False when the key was derived from API key and body of an SDK retry.';
create index replays_wanted on replays (node) where wanted_at is not null;

-- Claims a key for a request, or tells which attempt has it. Of SDK retries (p_attempt_hash) the key follows the newest attempt of
-- the last minute with this body. An attempt without an answer to give loses the key; p_answerless names one that the caller knows.
create function claim_replay(
  p_partition smallint, p_account_id uuid, p_key_id uuid, p_key_hash bytea, p_body_hash bytea, p_request_id uuid, p_node uuid,
  p_attempt_hash bigint, p_answerless uuid
) returns table (state text, attempt_id uuid, attempt_node uuid, attempt_answer text)
language plpgsql as $$
declare
  v_replay  replays;
  v_attempt requests;
  v_newest  requests;
  v_now     timestamptz;
begin
  loop
    insert into replays (partition, account_id, key_hash, body_hash, request_id, key_id, node, is_keyed)
      values (p_partition, p_account_id, p_key_hash, p_body_hash, p_request_id, p_key_id, p_node, p_attempt_hash is null)
      on conflict do nothing;
    select * into v_replay from replays p
      where p.partition = p_partition and p.account_id = p_account_id and p.key_hash = p_key_hash for update;
    -- Deleted between the two statements: the key is free again.
    exit when found;
  end loop;
  v_now := clock_timestamp();
  select * into v_attempt from requests r where r.partition = p_partition and r.id = v_replay.request_id;
  if p_attempt_hash is not null and (v_attempt.id is not null or v_replay.request_id = p_request_id) then
    select * into v_newest from requests r
      where r.partition = p_partition and r.account_id = p_account_id and r.key_id = p_key_id and r.body_hash = p_attempt_hash
        and r.status <> 'refused' and (r.ended_at is null or r.ended_at > v_now - interval '60 seconds')
      -- Not by id: that is by the clock of the node that made it.
      order by r.created_at desc, r.id desc limit 1;
    if coalesce(v_newest.id, p_request_id) <> v_replay.request_id then
      update replays p set request_id = coalesce(v_newest.id, p_request_id), node = coalesce(v_newest.node, p_node),
             answer = null, earlier_id = null, wanted_at = null, created_at = v_now
        where p.partition = p_partition and p.account_id = p_account_id and p.key_hash = p_key_hash
        returning * into v_replay;
      v_attempt := v_newest;
    end if;
  end if;
  if v_replay.request_id = p_request_id then
    return query select 'claimed', p_request_id, p_node, null::text;
  elsif v_replay.body_hash <> p_body_hash then
    return query select 'mismatch', v_replay.request_id, null::uuid, null::text;
  elsif v_replay.answer <> '' then
    return query select 'answered', v_replay.request_id, v_replay.node, v_replay.answer;
  -- The end of an attempt may be in the ledger a moment before its answer: as long as its node lives, the answer will come.
  elsif v_replay.answer is null and v_replay.request_id is distinct from p_answerless
        and (v_attempt.id is null or v_attempt.status in ('held', 'succeeded'))
        -- The caller knows about its own attempts, even when its lease lapsed for a moment.
        and (coalesce(v_replay.node, v_attempt.node) = p_node
             or exists (select from nodes n where n.id = coalesce(v_replay.node, v_attempt.node) and n.lease_until >= v_now)) then
    return query select 'running', v_replay.request_id, coalesce(v_replay.node, v_attempt.node), null::text;
  else
    update replays p set request_id = p_request_id, node = p_node, answer = null, wanted_at = null, created_at = v_now,
           earlier_id = case when v_attempt.status = 'cancelled' and not v_attempt.stream and v_attempt.charged > 0
                             then v_attempt.id else v_replay.earlier_id end
      where p.partition = p_partition and p.account_id = p_account_id and p.key_hash = p_key_hash;
    return query select 'claimed', p_request_id, p_node, null::text;
  end if;
end $$;

-- Ends the claim of a request: keeps its answer or, without one, leaves the key to the attempt that a retry may still replace.
create function close_replay(p_partition smallint, p_account_id uuid, p_key_hash bytea, p_request_id uuid, p_answer text) returns void
language plpgsql as $$
declare
  v_replay  replays;
  v_own     bigint;
  v_earlier bigint;
begin
  select * into v_replay from replays p
    where p.partition = p_partition and p.account_id = p_account_id and p.key_hash = p_key_hash and p.request_id = p_request_id
    for update;
  if not found then
    return;
  end if;
  if p_answer <> '' then
    update replays p set answer = p_answer, wanted_at = null
      where p.partition = p_partition and p.account_id = p_account_id and p.key_hash = p_key_hash;
    return;
  end if;
  select r.charged into v_own from requests r where r.partition = p_partition and r.id = p_request_id;
  select r.charged into v_earlier from requests r where r.partition = p_partition and r.id = v_replay.earlier_id;
  if coalesce(v_earlier, 0) > coalesce(v_own, 0) then
    update replays p set request_id = v_replay.earlier_id, earlier_id = null, answer = '', wanted_at = null
      where p.partition = p_partition and p.account_id = p_account_id and p.key_hash = p_key_hash;
  elsif coalesce(v_own, 0) = 0 then
    delete from replays p where p.partition = p_partition and p.account_id = p_account_id and p.key_hash = p_key_hash;
  else
    update replays p set answer = '', earlier_id = null, wanted_at = null
      where p.partition = p_partition and p.account_id = p_account_id and p.key_hash = p_key_hash;
  end if;
end $$;

-- Refunds the attempt that a delivered retry replaced: a buffered one that its client cancelled, at most what the retry itself was
-- charged. Of the attempts of one hour an account gets back max(5, 2 % of its requests in that hour). Streamed output and delivered
-- answers are never refunded. The claim is checked here so that what `penny payout` reserves is all that can be refunded.
drop function refund_attempt(smallint, uuid, uuid);
create function refund_attempt(p_partition smallint, p_account_id uuid, p_key_hash bytea, p_retry_id uuid) returns bigint
language plpgsql as $$
declare
  v_request  requests;
  v_retry    requests;
  v_account  accounts;
  v_hour     timestamptz;
  v_requests bigint;
  v_refunds  bigint;
  v_back     bigint;
  v_given    bigint;
begin
  perform 1 from accounts a where a.partition = p_partition and a.id = p_account_id for no key update;
  select * into v_retry from requests r
    where r.partition = p_partition and r.id = p_retry_id and r.account_id = p_account_id and r.status = 'succeeded';
  select r.* into v_request from replays p
    join requests r on r.partition = p.partition and r.id = p.earlier_id
    where p.partition = p_partition and p.account_id = p_account_id and p.key_hash = p_key_hash and p.request_id = p_retry_id
      and r.account_id = p_account_id and r.key_id = v_retry.key_id and r.status = 'cancelled' and not r.stream
      and r.error_code is distinct from 'superseded';
  if v_retry.id is null or v_request.id is null or least(v_request.charged, v_retry.charged) = 0 then
    return 0;
  end if;
  v_back := least(v_request.charged, v_retry.charged);
  v_hour := date_trunc('hour', v_request.created_at, 'UTC');
  select coalesce(sum(h.succeeded + h.failed + h.cancelled), 0) into v_requests from usage_hours h
    where h.partition = p_partition and h.account_id = p_account_id and h.hour = v_hour;
  -- Ids are by the clocks of the nodes, so the range is wider than the hour.
  select count(*) into v_refunds from requests r
    where r.partition = p_partition and r.account_id = p_account_id and r.status = 'cancelled' and r.error_code = 'superseded'
      and date_trunc('hour', r.created_at, 'UTC') = v_hour
      and r.id >= rpad(lpad(to_hex((extract(epoch from v_hour - interval '1 hour') * 1000)::bigint), 12, '0'), 32, '0')::uuid;
  if v_refunds >= greatest(5, v_requests / 50) then
    return 0;
  end if;
  select * into v_account from accounts a where a.partition = p_partition and a.id = p_account_id;
  -- What an operator gave back of the same charge is not given twice.
  select coalesce(sum(x.amount), 0) into v_given from adjustments x
    where x.partition = p_partition and x.account_id = p_account_id and x.request_id = v_request.id;
  v_given := least(v_account.adjusted,
                   greatest(v_given - (v_request.charged - v_back), v_account.adjusted - (v_account.charged - v_back), 0));
  if v_given > 0 then
    insert into adjustments (partition, id, account_id, amount, reason, made_by, request_id)
      values (p_partition, gen_random_uuid(), p_account_id, -v_given,
              'the request was served again: its charge is refunded', 'service', v_request.id);
  end if;
  update requests r
    set charged = r.charged - v_back, search_cost = least(r.search_cost, r.charged - v_back), error_code = 'superseded'
    where r.partition = p_partition and r.id = v_request.id;
  update accounts a
    set credit = a.credit + v_back - v_given, charged = a.charged - v_back, adjusted = a.adjusted - v_given
    where a.partition = p_partition and a.id = p_account_id;
  update api_keys k set spent = k.spent - v_back
    where k.partition = p_partition and k.id = v_request.key_id and v_request.created_at >= k.window_start;
  update usage_hours h
    set charged = h.charged - v_back,
        search_cost = h.search_cost - v_request.search_cost + least(v_request.search_cost, v_request.charged - v_back)
    where h.partition = p_partition and h.account_id = p_account_id and h.key_id = v_request.key_id
      and h.hour = v_hour and h.model = v_request.model;
  insert into settlements (partition, id, revision, account_id, charged, state, ended_at, changed_at)
    values (p_partition, v_request.id, 1, p_account_id, v_request.charged - v_back, 'none', clock_timestamp(), clock_timestamp());
  return v_back - v_given;
end $$;
