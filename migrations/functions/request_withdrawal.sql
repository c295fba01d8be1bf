-- Starts a withdrawal: takes the amount from the spendable balance, credit last. Charges up to now are paid on chain before the
-- money leaves. The id is the caller's: a repeated call gets the stored row.
create function request_withdrawal(p_partition smallint, p_account_id uuid, p_id uuid, p_amount bigint, p_recipient text, p_min bigint)
returns table (decision text, withdrawable bigint, available_at timestamptz)
language plpgsql as $$
declare
  v_account      accounts;
  v_state        ledger_state;
  v_withdrawable bigint;
  v_limit        record;
  v_refusal      text;
  v_transfer     transfers;
begin
  perform lock_accounts(p_partition, array[p_account_id]);
  select * into v_account from accounts a where a.partition = p_partition and a.id = p_account_id;
  select * into v_state from ledger_state;
  v_withdrawable := v_account.gateway + v_account.credit - v_account.extended;
  select * into v_limit from limit_withdrawal(p_partition, p_account_id, p_amount, v_withdrawable, p_min);
  v_refusal := case
    when exists (select from transfers t where t.partition = p_partition and t.id = p_id) then 'stored'
    when v_state.frozen_at is not null then 'ledger_frozen'
    when v_account.wallet is not null then 'wallet_account'
    when p_amount > v_withdrawable then 'insufficient_balance'
    when p_amount <= v_state.withdrawal_fee_max then 'below_fee'
    else v_limit.refusal
  end;
  if v_refusal is not null then
    return query select v_refusal, case when v_refusal = 'below_fee' then v_state.withdrawal_fee_max else v_withdrawable end,
                        v_limit.available_at;
    return;
  end if;
  insert into transfers (partition, id, kind, account_id, amount, from_credit, fee_max, after_entry, counterparty)
    values (p_partition, p_id, 'withdrawal', p_account_id, p_amount, greatest(0, p_amount - v_account.gateway),
            v_state.withdrawal_fee_max, v_account.entries, p_recipient)
    returning * into v_transfer;
  update accounts a
    set gateway = a.gateway - least(a.gateway, p_amount), credit = a.credit - greatest(0, p_amount - a.gateway),
        withdrawn = a.withdrawn + p_amount
    where a.partition = p_partition and a.id = p_account_id;
  perform report_withdrawal(p_partition, v_transfer, null);
  return query select 'requested', v_withdrawable - p_amount, null::timestamptz;
end $$;
