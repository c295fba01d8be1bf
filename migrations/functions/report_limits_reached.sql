-- The part of record_refusals that writes key.limit_reached, once per key and window. The accounts are locked.
create function report_limits_reached(p_partition smallint, p_key_ids uuid[], p_now timestamptz) returns void
language plpgsql as $$
declare
  v_keys api_keys[];
begin
  select array_agg(k) into v_keys from api_keys k
    where k.partition = coalesce(p_partition, k.partition) and k.id = any (p_key_ids) and k.limit_amount is not null
      and (k.limit_reached_at is null or k.limit_reached_at < k.window_start);
  if v_keys is null then
    return;
  end if;
  update api_keys k set limit_reached_at = p_now
    where k.partition = coalesce(p_partition, k.partition) and k.id = any (array(select x.id from unnest(v_keys) as x));
  perform write_events(p_partition, array(
    select row(x.account_id, 'key.limit_reached', jsonb_build_object('id', x.id, 'name', x.name, 'limit_atomic', x.limit_amount::text,
             'limit_window', x.limit_window, 'spent_atomic', x.spent::text))::event_call
      from unnest(v_keys) as x));
end $$;
