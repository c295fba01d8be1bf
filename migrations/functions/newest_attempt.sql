-- The newest request of a key with this body that is open or ended less than a minute ago. A client may send one body for months:
-- of the ended requests it reads at most a thousand, the newest of the last two hours. Without sorts the planner reads requests_of_body
-- backwards. The conditions depend on each other, so it may expect fewer than a thousand rows, and would read and sort all of them.
create function newest_attempt(p_partition smallint, p_account_id uuid, p_key_id uuid, p_body_hash bigint, p_now timestamptz) returns uuid
language plpgsql stable
set enable_sort = off
as $$
declare
  v_since timestamptz := p_now - interval '2 hours';
  v_id    uuid;
begin
  select x.id into v_id from (
    select h.id, h.created_at from holds h
      where h.partition = p_partition and h.account_id = p_account_id and h.key_id = p_key_id and h.body_hash = p_body_hash
    union all
    select e.id, e.created_at from (
      select r.id, r.key_id, r.status, r.created_at, r.ended_at from requests r
        where r.partition = p_partition and r.account_id = p_account_id and r.body_hash = p_body_hash
          and r.created_at >= v_since and r.id >= first_request_id(v_since)
        order by r.created_at desc limit 1000) e
      where e.key_id = p_key_id and e.status <> 'refused' and e.ended_at > p_now - interval '60 seconds') x
    -- Not by id: ids contain the clock of the node that made them.
    order by x.created_at desc, x.id desc limit 1;
  return v_id;
end $$;
