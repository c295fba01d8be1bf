-- Refunds part of a charge as credit, or (`p_amount` below 0) takes such a refund back. Idempotent by id. `room` is the most that
-- could be refunded or taken back: no account is refunded more than it was charged, or loses more than it was refunded.
create function adjust_account(
  p_partition smallint, p_account_id uuid, p_id uuid, p_amount bigint, p_reason text, p_made_by text, p_request_id uuid
) returns table (decision text, room bigint)
language plpgsql as $$
declare
  v_now     timestamptz;
  v_account accounts;
  v_room    bigint;
  v_charged bigint;
  v_given   bigint;
begin
  perform lock_accounts(p_partition, array[p_account_id]);
  v_now := clock_timestamp();
  select * into v_account from accounts a where a.partition = p_partition and a.id = p_account_id;
  v_room := case when p_amount > 0 then v_account.charged - v_account.given_back
                 else least(v_account.given_back, v_account.gateway + v_account.credit - v_account.extended) end;
  if p_request_id is not null then
    select r.charged into v_charged from requests r
      where r.partition = p_partition and r.id = p_request_id and r.account_id = p_account_id;
    select coalesce(sum(x.amount), 0) into v_given from adjustments x
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
    insert into adjustments (partition, id, account_id, entry, kind, amount, request_id, reason, made_by)
      values (p_partition, p_id, p_account_id, v_account.entries + 1, 'adjustment', p_amount, p_request_id, p_reason, p_made_by);
    update accounts a
      set credit = a.credit + p_amount, given_back = a.given_back + p_amount, entries = a.entries + 1,
          unpaid_since = case when p_amount < 0 and a.unpaid_since is null and a.wallet is null then v_now else a.unpaid_since end
      where a.partition = p_partition and a.id = p_account_id;
    perform write_events(p_partition, array[row(p_account_id, 'account.changed', '{}')::event_call]);
    return query select 'made', v_room - abs(p_amount);
  end if;
end $$;
