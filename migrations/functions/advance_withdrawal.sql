-- Advances an open withdrawal. When it fails, its money is returned as it was taken. When it is paid, the part of the fee that the
-- gateway did not keep is returned; an unknown fee counts as kept in full.
--
-- `p_attempts` is what the caller knows: returns false when the intent was submitted again since, because that attempt may have been
-- accepted. `sent` without the gateway's id begins an attempt. The gateway's id is stored whichever attempt it answers: all are one intent.
create function advance_withdrawal(
  p_partition smallint, p_account_id uuid, p_id uuid, p_attempts integer, p_state text, p_gateway_id text, p_tx_hash bytea, p_reason text, p_fee bigint
) returns boolean
language plpgsql as $$
declare
  v_now  timestamptz;
  v_old  withdrawals;
  v_fee  bigint;
begin
  perform lock_accounts(p_partition, array[p_account_id]);
  v_now := clock_timestamp();
  select * into v_old from withdrawals w
    where w.partition = p_partition and w.id = p_id and w.account_id = p_account_id and w.state not in ('confirmed', 'failed')
      and (w.attempts = p_attempts or p_gateway_id is not null);
  if not found then
    return false;
  end if;
  v_fee := case when p_state = 'confirmed' then coalesce(p_fee, v_old.fee_max) end;
  update withdrawals w
    set state = p_state, gateway_id = coalesce(p_gateway_id, w.gateway_id), tx_hash = coalesce(p_tx_hash, w.tx_hash), reason = p_reason,
        fee = v_fee, changed_at = v_now, attempts = w.attempts + case when p_state = 'sent' and p_gateway_id is null then 1 else 0 end,
        sent_at = case when p_state = 'sent' and w.sent_at is null then v_now else w.sent_at end
    where w.partition = p_partition and w.id = p_id;
  if p_state = 'failed' then
    update accounts a
      set gateway = a.gateway + v_old.amount - v_old.from_credit, credit = a.credit + v_old.from_credit,
          withdrawn = a.withdrawn - v_old.amount,
          covered = a.covered + case when v_old.refund is null then 0 else v_old.amount end
      where a.partition = p_partition and a.id = p_account_id;
  elsif p_state = 'confirmed' then
    update accounts a
      set gateway = a.gateway + v_old.fee_max - v_fee, withdrawn = a.withdrawn - v_old.fee_max + v_fee,
          paid = a.paid - case when v_old.refund is null then 0 else v_old.amount end
      where a.partition = p_partition and a.id = p_account_id;
  end if;
  perform write_events(p_partition, array[row(p_account_id, 'withdrawal.updated', jsonb_build_object(
    'id', p_id, 'state', p_state, 'amount_atomic', v_old.amount::text, 'fee_atomic', v_fee::text, 'recipient', v_old.recipient,
    'tx_hash', '0x' || encode(coalesce(p_tx_hash, v_old.tx_hash), 'hex'), 'reason', p_reason))::event_call]);
  return true;
end $$;
