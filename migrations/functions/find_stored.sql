-- Which of these sorted ids the ledger has: open, ended or refused. The bounds let PostgreSQL skip the other months. An id of a
-- closed month is an error: a sealed month accepts no additions, and its dropped rows could not be found here.
create function find_stored(p_partition smallint, p_ids uuid[]) returns uuid[]
language plpgsql stable as $$
begin
  if p_ids[1] < (select l.closed_before from ledger_state l) then
    raise exception 'request % belongs to a month that is closed. Check the clock of the node that made the id.', p_ids[1];
  end if;
  return array(
    select h.id from holds h where h.partition = p_partition and h.id = any (p_ids)
    union all
    select r.id from requests r
     where r.partition = p_partition and r.id = any (p_ids) and r.id between p_ids[1] and p_ids[cardinality(p_ids)]);
end $$;
