-- The lowest id of a request at or after this time: ids are UUIDv7, which begin with milliseconds.
create function first_request_id(p_at timestamptz) returns uuid
language sql immutable parallel safe as $$
  select rpad(lpad(to_hex((extract(epoch from p_at) * 1000)::bigint), 12, '0'), 32, '0')::uuid
$$;
