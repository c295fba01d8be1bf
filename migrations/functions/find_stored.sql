-- Which of these sorted ids the ledger has: open, ended or refused. An id of a closed month is an error: a sealed month accepts no
-- additions, and its dropped rows could not be found here. So is an id of a month that has no partition yet: once it was stored in
-- requests_other, that month would never get one.
create function find_stored(p_partition smallint, p_ids uuid[]) returns uuid[]
language plpgsql stable as $$
begin
  if p_ids[1] < (select l.closed_before from ledger_state l) then
    raise exception 'request % belongs to a month that is closed. Check the clock of the node that made the id.', p_ids[1];
  end if;
  if p_ids[cardinality(p_ids)] >= first_request_id(clock_timestamp() + interval '32 days') then
    raise exception 'request % is more than a month ahead. Check the clock of the node that made the id.', p_ids[cardinality(p_ids)];
  end if;
  return array(select s.id from read_stored(p_partition, p_ids) s order by s.id);
end $$;
