-- Renews or takes the lease of a node. Returns false when it had expired: other nodes may have ended its requests.
create function renew_lease(p_node uuid, p_lease_ms integer) returns boolean
language plpgsql as $$
declare
  v_until timestamptz;
  v_next  timestamptz;
begin
  select n.lease_until into v_until from nodes n where n.id = p_node for update;
  v_next := clock_timestamp() + p_lease_ms * interval '1 millisecond';
  insert into nodes (id, lease_until) values (p_node, v_next) on conflict (id) do update set lease_until = excluded.lease_until;
  return v_until is null or v_until >= clock_timestamp();
end $$;
