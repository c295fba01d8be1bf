-- The event of a withdrawal or refund that was requested or has moved. To customers it is `sent` while it is at the gateway.
create function report_withdrawal(p_partition smallint, p_transfer transfers, p_was text) returns void
language plpgsql as $$
declare
  v_state text := case when p_transfer.state in ('received', 'batched') then 'sent' else p_transfer.state end;
begin
  perform write_events(p_partition, array[row(p_transfer.account_id, 'withdrawal.updated', jsonb_build_object(
      'id', p_transfer.id, 'state', v_state, 'amount_atomic', p_transfer.amount::text, 'fee_atomic', p_transfer.fee::text,
      'recipient', p_transfer.counterparty, 'tx_hash', '0x' || encode(p_transfer.tx_hash, 'hex'), 'reason', p_transfer.reason))::event_call])
    where v_state <> 'sent' or p_was = 'requested';
end $$;
