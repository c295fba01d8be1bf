-- As in 0008, and: a step is taken from the state in which it was decided. A process that believes itself alone and is not would
-- else give an order back that another has handed in meanwhile. Nodes of before, and people, call it without.
drop function advance_withdrawal(smallint, uuid, uuid, text, text, text, bytea, text, bigint);
create function advance_withdrawal(
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
        tx_hash = coalesce(p_tx_hash, w.tx_hash), reason = p_reason, changed_at = clock_timestamp()
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
