-- A charge comes back once: by the operator's adjustment, or because its request is served again, never both.

alter table adjustments
  -- The request whose charge it gives back; null when it is about no single one.
  add column request_id uuid;
alter table accounts
  -- Nobody is given back more than was charged.
  add constraint accounts_given_back_within_charged check (adjusted <= charged);

-- As in 0005, and: an adjustment that names a request gives back no more than that request cost, and takes no more than it was given.
drop function adjust_account(smallint, uuid, uuid, bigint, text, text);
create function adjust_account(
  p_partition smallint, p_account_id uuid, p_id uuid, p_amount bigint, p_reason text, p_made_by text, p_request_id uuid default null
) returns table (decision text, room bigint)
language plpgsql as $$
declare
  v_account accounts;
  v_room    bigint;
  v_charged bigint;
  v_given   bigint;
begin
  perform 1 from accounts a where a.partition = p_partition and a.id = p_account_id for no key update;
  select * into v_account from accounts a where a.partition = p_partition and a.id = p_account_id;
  v_room := case when p_amount > 0 then greatest(0, v_account.charged - v_account.adjusted)
                 else least(v_account.adjusted, v_account.gateway + v_account.credit - v_account.extended) end;
  if p_request_id is not null then
    select r.charged into v_charged from requests r
      where r.partition = p_partition and r.id = p_request_id and r.account_id = p_account_id;
    select greatest(0, coalesce(sum(x.amount), 0)) into v_given from adjustments x
      where x.partition = p_partition and x.account_id = p_account_id and x.request_id = p_request_id;
    v_room := least(v_room, case when p_amount > 0 then coalesce(v_charged, 0) - v_given else v_given end);
  end if;
  if exists (select from adjustments x where x.partition = p_partition and x.id = p_id) then
    return query select 'stored', v_room;
  elsif exists (select from ledger_state l where l.frozen_at is not null) then
    return query select 'ledger_frozen', v_room;
  elsif v_account.id is null or abs(p_amount) > v_room then
    return query select 'exceeds_room', coalesce(v_room, 0);
  else
    insert into adjustments (partition, id, account_id, amount, reason, made_by, request_id)
      values (p_partition, p_id, p_account_id, p_amount, p_reason, p_made_by, p_request_id);
    update accounts a set credit = a.credit + p_amount, adjusted = a.adjusted + p_amount
      where a.partition = p_partition and a.id = p_account_id;
    return query select 'made', v_room - abs(p_amount);
  end if;
end $$;

-- As in 0002, and: what an operator has given back of this charge is not given back again. Of adjustments that name no request, so
-- much counts as is more than all other charges of the account. Returns what was given back now.
create or replace function refund_attempt(p_partition smallint, p_account_id uuid, p_id uuid) returns bigint
language plpgsql as $$
declare
  v_request requests;
  v_account accounts;
  v_given   bigint;
begin
  perform 1 from accounts a where a.partition = p_partition and a.id = p_account_id for no key update;
  select * into v_request from requests r
    where r.partition = p_partition and r.id = p_id and r.account_id = p_account_id and r.status <> 'held' and r.charged > 0;
  if not found then
    return 0;
  end if;
  select * into v_account from accounts a where a.partition = p_partition and a.id = p_account_id;
  select coalesce(sum(x.amount), 0) into v_given from adjustments x
    where x.partition = p_partition and x.account_id = p_account_id and x.request_id = p_id;
  v_given := least(v_account.adjusted, greatest(v_given, v_account.adjusted - (v_account.charged - v_request.charged), 0));
  if v_given > 0 then
    insert into adjustments (partition, id, account_id, amount, reason, made_by, request_id)
      values (p_partition, gen_random_uuid(), p_account_id, -v_given,
              'the request was served again: its whole charge comes back', 'service', p_id);
  end if;
  update requests r set charged = 0, search_cost = 0, error_code = 'superseded' where r.partition = p_partition and r.id = p_id;
  update accounts a
    set credit = a.credit + v_request.charged - v_given, charged = a.charged - v_request.charged, adjusted = a.adjusted - v_given
    where a.partition = p_partition and a.id = p_account_id;
  update api_keys k set spent = k.spent - v_request.charged
    where k.partition = p_partition and k.id = v_request.key_id and k.window_start = v_request.key_window;
  update usage_hours h set charged = h.charged - v_request.charged, search_cost = h.search_cost - v_request.search_cost
    where h.partition = p_partition and h.account_id = p_account_id and h.key_id = v_request.key_id
      and h.hour = date_trunc('hour', v_request.created_at, 'UTC') and h.model = v_request.model;
  insert into settlements (partition, id, revision, account_id, charged, state, ended_at, changed_at)
    values (p_partition, p_id, 1, p_account_id, 0, 'none', clock_timestamp(), clock_timestamp());
  return v_request.charged - v_given;
end $$;
