-- A node whose lease has expired must not hold anything: other nodes treat its requests as orphans and end them. The node reads the
-- end of its lease from `nodes` and passes it on: a worker of a cluster has no copy of that table.
create function require_lease(p_node uuid, p_lease_until timestamptz, p_now timestamptz) returns void
language plpgsql as $$
begin
  if coalesce(p_lease_until < p_now, true) then
    raise exception 'the lease of node % has expired', p_node using errcode = 'P0L01';
  end if;
end $$;
