-- Credits a payment that the gateway has accepted, once. The wallet's account is opened with its first one. False when it was
-- credited before, or is not known.
create function credit_x402_payment(p_partition smallint, p_call x402_payment_call) returns boolean
language plpgsql
set lock_timeout = '200ms'
as $$
declare
  v_now   timestamptz;
  v_value bigint;
begin
  perform lock_accounts(p_partition, array[p_call.account_id]);
  v_now := clock_timestamp();
  insert into accounts (partition, id, name, created_at, wallet)
    values (p_partition, p_call.account_id, 'Wallet ' || left(p_call.payer, 6) || '…' || right(p_call.payer, 4), v_now, p_call.payer)
    on conflict do nothing;
  insert into api_keys (partition, id, account_id, name, hint, created_at)
    values (p_partition, p_call.key_id, p_call.account_id, 'x402', 'x402', v_now)
    on conflict do nothing;
  -- Another first payment may have opened the account meanwhile.
  perform lock_accounts(p_partition, array[p_call.account_id]);
  update transfers t set state = 'received', gateway_id = p_call.gateway_id, reason = null, changed_at = v_now
    where t.partition = p_partition and t.id = p_call.deposit_id and t.account_id = p_call.account_id and t.gateway_id is null
    returning t.amount into v_value;
  if not found then
    return false;
  end if;
  insert into deposits (partition, id, account_id, amount, source, created_at)
    values (p_partition, p_call.deposit_id, p_call.account_id, v_value, 'x402', v_now);
  update accounts a set credit = a.credit + v_value, deposited = a.deposited + v_value, covered = a.covered + v_value,
      transfers = a.transfers + 1
    where a.partition = p_partition and a.id = p_call.account_id;
  perform write_events(p_partition, array[row(p_call.account_id, 'deposit.credited', jsonb_build_object(
    'id', p_call.deposit_id, 'amount_atomic', v_value::text, 'source', 'x402'))::event_call]);
  return true;
end $$;
