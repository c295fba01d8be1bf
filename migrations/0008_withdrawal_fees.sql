-- A gateway may keep a fee of what leaves it: Circle's does, ours does not. The fee comes out of the amount that is withdrawn. The
-- most that it can be is set aside with the order and signed with it, so that the recipient is paid amount - fee_max whatever
-- happens; what the gateway did not take of it comes back into the balance when the fee is known.

-- The most that the gateway keeps of a withdrawal that is ordered now. Settlement asks the gateway and writes it down.
alter table ledger_state
  add column withdrawal_fee_max bigint not null default 0 check (withdrawal_fee_max >= 0);

alter table withdrawals
  add column fee_max bigint not null default 0,
  -- What was taken; null until it is paid.
  add column fee     bigint,
  add constraint withdrawals_something_arrives check (fee_max >= 0 and fee_max < amount),
  add constraint withdrawals_fee_within_its_maximum check (fee between 0 and fee_max);

alter table payouts
  add column fee_max bigint not null default 0,
  add column fee     bigint,
  add constraint payouts_something_arrives check (fee_max >= 0 and fee_max < amount),
  add constraint payouts_fee_within_its_maximum check (fee between 0 and fee_max);

-- As in 0002, and: the order has the fee of its hour. An amount that the fee may eat up is refused; `withdrawable` is the fee then.
create or replace function request_withdrawal(
  p_partition smallint, p_account_id uuid, p_id uuid, p_amount bigint, p_recipient text
) returns table (decision text, withdrawable bigint)
language plpgsql as $$
declare
  v_account     accounts;
  v_fee_max     bigint;
  v_frozen      boolean;
  v_debt        bigint;
  v_credit_back bigint;
  v_now         timestamptz;
begin
  perform 1 from accounts a where a.partition = p_partition and a.id = p_account_id for no key update;
  select * into v_account from accounts a where a.partition = p_partition and a.id = p_account_id;
  v_now := clock_timestamp();
  if exists (select from withdrawals w where w.partition = p_partition and w.id = p_id) then
    return query select 'stored', v_account.gateway + v_account.credit - v_account.extended;
    return;
  end if;
  select l.frozen_at is not null, l.withdrawal_fee_max into v_frozen, v_fee_max from ledger_state l;
  if v_frozen then
    return query select 'ledger_frozen', 0::bigint;
    return;
  end if;
  if p_amount > v_account.gateway + v_account.credit - v_account.extended then
    return query select 'insufficient_balance', v_account.gateway + v_account.credit - v_account.extended;
    return;
  end if;
  if p_amount <= v_fee_max then
    return query select 'below_fee', v_fee_max;
    return;
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
  return query select 'requested', v_account.gateway + v_account.credit - v_account.extended - p_amount;
end $$;

-- As in 0002, and: when it is paid, what the gateway did not take of the fee comes back. A fee that nobody tells counts as taken
-- whole: the books never say that there is more than there is. Nodes of before call it without a fee.
drop function advance_withdrawal(smallint, uuid, uuid, text, text, text, bytea, text);
create function advance_withdrawal(
  p_partition smallint, p_account_id uuid, p_id uuid, p_state text, p_return_id text, p_rail_id text, p_tx_hash bytea,
  p_reason text, p_fee bigint default null
) returns boolean
language plpgsql as $$
declare
  v_withdrawal withdrawals;
  v_credit     bigint;
  v_fee        bigint;
begin
  perform 1 from accounts a where a.partition = p_partition and a.id = p_account_id for no key update;
  select * into v_withdrawal from withdrawals w
    where w.partition = p_partition and w.id = p_id and w.account_id = p_account_id and w.state not in ('confirmed', 'failed');
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
