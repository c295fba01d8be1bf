-- Small withdrawals cost more gas than they move, and a queue of them makes everybody else wait. As in 0008, and:
-- a withdrawal below p_min must take everything that is left, which is allowed once in 24 hours; at most 3 may be open.
-- `available_at` is when a small withdrawal is allowed again. The default serves nodes of the version before.
drop function request_withdrawal(smallint, uuid, uuid, bigint, text);
create function request_withdrawal(
  p_partition smallint, p_account_id uuid, p_id uuid, p_amount bigint, p_recipient text, p_min bigint default 100000
) returns table (decision text, withdrawable bigint, available_at timestamptz)
language plpgsql as $$
declare
  v_account      accounts;
  v_withdrawable bigint;
  v_fee_max      bigint;
  v_frozen       boolean;
  v_debt         bigint;
  v_credit_back  bigint;
  v_now          timestamptz;
  v_last_small   timestamptz;
begin
  perform 1 from accounts a where a.partition = p_partition and a.id = p_account_id for no key update;
  select * into v_account from accounts a where a.partition = p_partition and a.id = p_account_id;
  v_now := clock_timestamp();
  v_withdrawable := v_account.gateway + v_account.credit - v_account.extended;
  if exists (select from withdrawals w where w.partition = p_partition and w.id = p_id) then
    return query select 'stored', v_withdrawable, null::timestamptz;
    return;
  end if;
  select l.frozen_at is not null, l.withdrawal_fee_max into v_frozen, v_fee_max from ledger_state l;
  if v_frozen then
    return query select 'ledger_frozen', 0::bigint, null::timestamptz;
    return;
  end if;
  if p_amount > v_withdrawable then
    return query select 'insufficient_balance', v_withdrawable, null::timestamptz;
    return;
  end if;
  if p_amount <= v_fee_max then
    return query select 'below_fee', v_fee_max, null::timestamptz;
    return;
  end if;
  if p_amount < p_min and p_amount < v_withdrawable then
    return query select 'below_min', v_withdrawable, null::timestamptz;
    return;
  end if;
  if (select count(*) from withdrawals w where w.partition = p_partition and w.account_id = p_account_id
        and w.state in ('requested', 'returning', 'returned', 'sent')) >= 3 then
    return query select 'too_many_open', v_withdrawable, null::timestamptz;
    return;
  end if;
  if p_amount < p_min then
    select max(w.created_at) into v_last_small from withdrawals w
      where w.partition = p_partition and w.account_id = p_account_id and w.amount < p_min and w.state <> 'failed'
        and w.created_at > v_now - interval '24 hours';
    if v_last_small is not null then
      return query select 'small_too_soon', v_withdrawable, v_last_small + interval '24 hours';
      return;
    end if;
  end if;

  v_debt := greatest(0, -v_account.credit);
  v_credit_back := greatest(0, p_amount - (v_account.gateway - v_debt));
  if v_debt > 0 then
    insert into settlements (partition, id, account_id, charged, value, nonce, authorized_at, state, ended_at, changed_at)
      values (p_partition, p_id, p_account_id, 0, v_debt, v_account.nonce_next, v_now, 'allocated', v_now, v_now);
  end if;
  insert into withdrawals (partition, id, account_id, amount, fee_max, credit_back, nonce, recipient, state)
    values (p_partition, p_id, p_account_id, p_amount, v_fee_max, v_credit_back,
            case when v_credit_back > 0 then v_account.nonce_next + case when v_debt > 0 then 1 else 0 end end,
            p_recipient, 'requested');
  update accounts a
    set gateway = a.gateway - v_debt - (p_amount - v_credit_back), credit = a.credit + v_debt - v_credit_back,
        authorized = a.authorized + v_debt, unsettled = a.unsettled + v_debt,
        returned = a.returned + v_credit_back, withdrawn = a.withdrawn + p_amount,
        nonce_next = a.nonce_next + case when v_debt > 0 then 1 else 0 end + case when v_credit_back > 0 then 1 else 0 end
    where a.partition = p_partition and a.id = p_account_id;
  return query select 'requested', v_withdrawable - p_amount, null::timestamptz;
end $$;
