-- The requests of these sorted ids that the ledger has: open, ended or refused. The bounds let PostgreSQL skip the other months.
create function read_stored(p_partition smallint, p_ids uuid[])
returns table (id uuid, status text, authorized bigint, from_credit bigint, charged bigint, created_at timestamptz)
language plpgsql stable
-- Unlike in place_holds, each id is looked up by itself: a hash join would read a month of requests for a batch of ids.
set enable_seqscan = off set enable_nestloop = on set enable_hashjoin = off set enable_mergejoin = off
as $$
begin
  return query
    select h.id, 'held', h.authorized, h.from_credit, 0::bigint, h.created_at
      from holds h where h.partition = coalesce(p_partition, h.partition) and h.id = any (p_ids);
  if p_partition is not null then
    return query
      select r.id, r.status, r.authorized, r.from_credit, r.charged, r.created_at
        from requests r
       where r.partition = p_partition and r.id = any (p_ids) and r.id between p_ids[1] and p_ids[cardinality(p_ids)];
  else
    -- The primary key of requests begins with the partition, because the log of an account must not be read by it: one look-up for
    -- each id, in the partition that the id names.
    return query
      select r.id, r.status, r.authorized, r.from_credit, r.charged, r.created_at
        from unnest(p_ids) as i (id)
        join requests r on r.partition = partition_of(i.id) and r.id = i.id
       where r.id between p_ids[1] and p_ids[cardinality(p_ids)];
  end if;
end $$;
