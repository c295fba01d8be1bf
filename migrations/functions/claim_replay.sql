-- Claims a retry key for a request, or returns the attempt that has it. `p_attempt_hash` is the hash of the body when an SDK
-- retries without an Idempotency-Key: then it stands for the newest attempt with that body. `p_answerless` is an attempt that the
-- caller knows to have no answer.
create function claim_replay(
  p_partition smallint, p_account_id uuid, p_key_id uuid, p_key_hash bytea, p_body_hash bytea, p_request_id uuid, p_node uuid,
  p_attempt_hash bigint, p_answerless uuid
) returns table (state text, attempt_id uuid, attempt_node uuid, attempt_answer text)
language plpgsql
set lock_timeout = '200ms'
as $$
declare
  v_replay    replays;
  v_attempt   request_log;
  v_newest    request_log;
  v_newest_id uuid;
  v_now       timestamptz;
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
  select * into v_attempt from request_log r where r.partition = p_partition and r.id = v_replay.request_id;
  if p_attempt_hash is not null and (v_attempt.id is not null or v_replay.request_id = p_request_id) then
    v_newest_id := newest_attempt(p_partition, p_account_id, p_key_id, p_attempt_hash, v_now);
    select * into v_newest from request_log r where r.partition = p_partition and r.id = v_newest_id;
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
  -- An attempt's end may be in the ledger a moment before its answer. While its node is alive, the answer will follow: the caller
  -- looks, and names an attempt of a dead node in `p_answerless`.
  elsif v_replay.answer is null and v_replay.request_id is distinct from p_answerless
        and (v_attempt.id is null or v_attempt.status in ('held', 'succeeded')) then
    return query select 'running', v_replay.request_id, v_replay.node, null::text;
  else
    update replays p set request_id = p_request_id, node = p_node, answer = null, wanted_at = null, created_at = v_now,
           earlier_id = case when v_attempt.status = 'cancelled' and not v_attempt.stream and v_attempt.charged > 0
                             then v_attempt.id else v_replay.earlier_id end
      where p.partition = p_partition and p.account_id = p_account_id and p.key_hash = p_key_hash;
    return query select 'claimed', p_request_id, p_node, null::text;
  end if;
end $$;
