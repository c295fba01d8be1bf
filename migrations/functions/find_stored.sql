-- Which of these sorted ids the ledger has: open, ended or refused. An id of a closed month is an error: a sealed month accepts no
-- additions, and its dropped rows could not be found here.
create function find_stored(p_partition smallint, p_ids uuid[]) returns uuid[]
language plpgsql stable as $$
begin
  if p_ids[1] < (select l.closed_before from ledger_state l) then
    raise exception 'request % belongs to a month that is closed. Check the clock of the node that made the id.', p_ids[1];
  end if;
  return array(select s.id from read_stored(p_partition, p_ids) s order by s.id);
end $$;
