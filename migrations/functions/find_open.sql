-- The holds for these calls, in order; all null where the account and key have no such hold.
create function find_open(p_partition smallint, p_account_ids uuid[], p_key_ids uuid[], p_calls extension_call[]) returns open_hold[]
language plpgsql stable as $$
declare
  v_ids  uuid[] := array(select c.id from unnest(p_calls) as c);
  v_open open_hold[];
begin
  if cardinality(v_ids) <> (select count(distinct i) from unnest(v_ids) as i) then
    raise exception 'a request is named twice in one batch of extensions';
  end if;
  select array_agg(row(h.extended, h.key_window)::open_hold order by c.ordinality)
    into v_open
    from unnest(p_calls) with ordinality as c
    left join holds h on h.partition = coalesce(p_partition, h.partition) and h.id = any (v_ids) and h.id = c.id
                     and h.account_id = p_account_ids[c.account_of] and h.key_id = p_key_ids[c.key_of];
  return v_open;
end $$;
