-- Ends the claim of a request: stores its answer, or (`p_answer` empty) frees the key for the next attempt. An attempt that was
-- charged more stays with the key, so that a later retry can still replace it.
create function close_replay(p_partition smallint, p_account_id uuid, p_key_hash bytea, p_request_id uuid, p_answer text)
returns void
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
