-- The time of an entry of an account.
create function entry_time(p_partition smallint, p_account_id uuid, p_entry bigint) returns timestamptz
language plpgsql stable as $$
begin
  return coalesce(
    (select r.ended_at from requests r where r.partition = p_partition and r.account_id = p_account_id and r.entry = p_entry),
    (select x.created_at from adjustments x where x.partition = p_partition and x.account_id = p_account_id and x.entry = p_entry));
end $$;
