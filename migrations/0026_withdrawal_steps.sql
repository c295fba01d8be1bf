-- When a withdrawal reached the steps on its way: the dashboard shows them, and `changed_at` is only the last look at it.
alter table withdrawals add column returned_at timestamptz, add column sent_at timestamptz;
comment on column withdrawals.returned_at is 'When the credit of it was back in the gateway.';
comment on column withdrawals.sent_at is 'When the order was first handed in to the gateway.';

-- As in 0015, and notes these times.
create or replace function advance_withdrawal(
  p_partition smallint, p_account_id uuid, p_id uuid, p_state text, p_return_id text, p_rail_id text, p_tx_hash bytea,
  p_reason text, p_fee bigint default null, p_from text default null
) returns boolean
language plpgsql as $$
declare
  v_withdrawal withdrawals;
  v_credit     bigint;
  v_fee        bigint;
begin
  perform 1 from accounts a where a.partition = p_partition and a.id = p_account_id for no key update;
  select * into v_withdrawal from withdrawals w
    where w.partition = p_partition and w.id = p_id and w.account_id = p_account_id and w.state not in ('confirmed', 'failed')
      and (p_from is null or w.state = p_from);
  if not found then
    return false;
  end if;
  update withdrawals w
    set state = p_state, return_id = coalesce(p_return_id, w.return_id), rail_id = coalesce(p_rail_id, w.rail_id),
        tx_hash = coalesce(p_tx_hash, w.tx_hash), reason = p_reason, changed_at = clock_timestamp(),
        returned_at = case when p_state = 'returned' then coalesce(w.returned_at, clock_timestamp()) else w.returned_at end,
        sent_at = case when p_state = 'sent' then coalesce(w.sent_at, clock_timestamp()) else w.sent_at end
    where w.partition = p_partition and w.id = p_id;
  if p_state = 'failed' then
    v_credit := case when v_withdrawal.state in ('requested', 'returning') then v_withdrawal.credit_back else 0 end;
    update withdrawals w set credit_back = w.credit_back - v_credit where w.partition = p_partition and w.id = p_id;
    update accounts a
      set gateway = a.gateway + v_withdrawal.amount - v_credit, credit = a.credit + v_credit,
          returned = a.returned - v_credit, withdrawn = a.withdrawn - v_withdrawal.amount
      where a.partition = p_partition and a.id = p_account_id;
  elsif p_state = 'confirmed' then
    v_fee := coalesce(p_fee, v_withdrawal.fee_max);
    update withdrawals w set fee = v_fee where w.partition = p_partition and w.id = p_id;
    update accounts a
      set gateway = a.gateway + v_withdrawal.fee_max - v_fee, withdrawn = a.withdrawn - v_withdrawal.fee_max + v_fee
      where a.partition = p_partition and a.id = p_account_id;
  end if;
  return true;
end $$;
