-- The partition that a request's id names: the twelve bits after the version of its UUIDv7.
create function partition_of(p_id uuid) returns smallint
language sql immutable parallel safe as $$
  select ((get_byte(uuid_send(p_id), 6) & 15) << 8 | get_byte(uuid_send(p_id), 7))::smallint
$$;
