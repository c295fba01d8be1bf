-- Begins a refund: takes refundable credit of a wallet account, all of it when `p_amount` is null, to be paid back by the seller. The id
-- is the caller's: a repeated call gets the stored row. Its limits are those of withdrawals.
create function request_refund(p_partition smallint, p_account_id uuid, p_id uuid, p_amount bigint, p_min bigint, p_transfer_gas bigint)
returns table (decision text, refundable bigint, recipient text, refunded bigint, available_at timestamptz)
language plpgsql as $$
declare
  v_account accounts;
  v_state   ledger_state;
  v_amount  bigint;
  v_now     timestamptz;
  v_limit   record;
  v_refusal text;
  v_transfer transfers;
begin
  perform lock_accounts(p_partition, array[p_account_id]);
  v_now := clock_timestamp();
  select * into v_account from accounts a where a.partition = p_partition and a.id = p_account_id and a.wallet is not null;
  select * into v_state from ledger_state;
  refundable := refundable_credit(p_partition, p_account_id, p_transfer_gas);
  v_amount := coalesce(p_amount, refundable);
  select * into v_limit from limit_withdrawal(p_partition, p_account_id, v_amount, refundable, p_min);
  v_refusal := case
    when exists (select from transfers t where t.partition = p_partition and t.id = p_id) then 'stored'
    when v_account.id is null or v_amount <= 0 then 'nothing'
    when v_state.frozen_at is not null then 'ledger_frozen'
    when v_account.suspended_at is not null then 'account_suspended'
    when v_amount > refundable then 'insufficient_balance'
    else v_limit.refusal
  end;
  if v_refusal is not null then
    return query select v_refusal, coalesce(refundable, 0), v_account.wallet, null::bigint, v_limit.available_at;
    return;
  end if;
  insert into transfers (partition, id, kind, account_id, amount, from_credit, after_entry, counterparty, sequence, epoch, created_at, changed_at)
    values (p_partition, p_id, 'refund', p_account_id, v_amount, v_amount, v_account.entries, v_account.wallet,
            v_account.payments + 1, coalesce(v_state.settlement_epoch, 0), v_now, v_now)
    returning * into v_transfer;
  update accounts a
    set credit = a.credit - v_amount, withdrawn = a.withdrawn + v_amount, covered = a.covered - v_amount, payments = a.payments + 1,
        transfers = a.transfers + 1
    where a.partition = p_partition and a.id = p_account_id;
  perform report_withdrawal(p_partition, v_transfer, null);
  return query select 'requested', refundable - v_amount, v_account.wallet, v_amount, null::timestamptz;
end $$;
