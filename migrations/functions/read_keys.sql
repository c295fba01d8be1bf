-- The numbers of these keys that decide_hold needs, in order, in the window of `p_now`; null means the window that was last
-- written. A clock that stepped back does not reopen an earlier window.
create function read_keys(p_partition smallint, p_ids uuid[], p_now timestamptz) returns key_numbers[]
language plpgsql stable as $$
declare
  v_keys key_numbers[];
begin
  select array_agg(row(k.account_id,
                       case when k.revoked_at <= p_now then 'api_key_revoked' when k.expires_at <= p_now then 'api_key_expired' end,
                       k.limit_amount, greatest(k.window_start, k.window_now),
                       case when k.window_start >= k.window_now then k.spent else 0 end,
                       case when k.window_start >= k.window_now then k.held else 0 end, k.options_version)::key_numbers
                   order by k.place)
    into v_keys
    from (select x.*, i.place, case when p_now is null then x.window_start else window_start(x.limit_window, p_now) end as window_now
            from unnest(p_ids) with ordinality as i (id, place)
            left join api_keys x on x.partition = coalesce(p_partition, x.partition) and x.id = any (p_ids) and x.id = i.id) k;
  return v_keys;
end $$;
