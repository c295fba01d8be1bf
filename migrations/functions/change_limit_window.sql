-- Changes the limit window of a key and computes what the key has spent and holds in the new one. Windows begin on a full hour (UTC), so
-- the hourly sums are exact. No row of an ended request is read: a long history must not keep the account locked.
--
-- `p_old_spent` is the sum of the hours from `p_old_start` to `p_old_before`, which can no longer change and were added up without the
-- lock. Returns 0, or the milliseconds to wait: a window is changed at most once a minute.
create function change_limit_window(
  p_partition smallint, p_account_id uuid, p_key_id uuid, p_window text, p_old_start timestamptz, p_old_before timestamptz, p_old_spent bigint
) returns integer
language plpgsql as $$
declare
  v_now    timestamptz;
  v_start  timestamptz;
  v_key    api_keys;
  v_spent  bigint := 0;
  v_before timestamptz := '-infinity';
begin
  perform lock_accounts(p_partition, array[p_account_id]);
  v_now := clock_timestamp();
  select * into v_key from api_keys k where k.partition = p_partition and k.id = p_key_id and k.limit_window <> p_window;
  if not found then
    return 0;
  end if;
  -- If the time lies in the future, the clock was wrong then: do not wait for it.
  if v_key.window_changed_at between v_now - interval '1 minute' and v_now then
    return ceil(extract(epoch from v_key.window_changed_at + interval '1 minute' - v_now) * 1000);
  end if;
  v_start := window_start(p_window, v_now);
  -- A new window may have begun since the old hours were added up. It contains none of them.
  if v_start = p_old_start then
    v_spent := p_old_spent;
    v_before := p_old_before;
  end if;
  update holds h set key_window = v_start
    where h.partition = p_partition and h.key_id = p_key_id and h.account_id = p_account_id and h.created_at >= v_start;
  update api_keys k
    set limit_window = p_window, window_start = v_start, window_changed_at = v_now, spent = v_spent + s.spent - b.refunded, held = o.held
    from (select coalesce(sum(u.charged), 0) as spent from usage_hours u
           where u.partition = p_partition and u.account_id = p_account_id and u.key_id = p_key_id and u.hour >= v_start and u.hour >= v_before) s,
         (select coalesce(sum(x.quote + x.extended), 0) as held from holds x
           where x.partition = p_partition and x.key_id = p_key_id and x.account_id = p_account_id and x.created_at >= v_start) o,
         (select coalesce(sum(j.amount), 0) as refunded from adjustments j
           where j.partition = p_partition and j.account_id = p_account_id and j.created_at >= v_start and j.key_id = p_key_id
             and j.request_at >= v_start) b
    where k.partition = p_partition and k.id = p_key_id;
  return 0;
end $$;
