-- A node whose lease has expired must not hold anything: other nodes treat its requests as orphans and end them.
create function require_lease(p_node uuid, p_now timestamptz) returns void
language plpgsql as $$
begin
  if not exists (select from nodes n where n.id = p_node and n.lease_until >= p_now) then
    raise exception 'the lease of node % has expired', p_node using errcode = 'P0L01';
  end if;
end $$;
