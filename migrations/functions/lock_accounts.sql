-- Locks accounts, always in id order, so that two batches cannot deadlock. A write of no row comes first: on Citus only a write
-- takes the lock that keeps a shard from moving before the following read.
create function lock_accounts(p_partition smallint, p_ids uuid[]) returns void
language plpgsql as $$
begin
  update accounts a set held = a.held where a.partition = p_partition and a.id = '00000000-0000-0000-0000-000000000000';
  perform 1 from accounts a where a.partition = coalesce(p_partition, a.partition) and a.id = any (p_ids) order by a.id for no key update;
end $$;
