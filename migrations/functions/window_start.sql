-- The start of the spending window that contains this time, in UTC. Weeks begin on Monday.
create function window_start(p_window text, p_at timestamptz) returns timestamptz
language sql immutable parallel safe as $$
  select case when p_window = 'lifetime' then '-infinity'::timestamptz
              else date_trunc(p_window, p_at at time zone 'UTC') at time zone 'UTC' end
$$;
