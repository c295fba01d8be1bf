-- Updates credited payments of wallets to the state that the gateway reports. A payment that fails is taken back as far as it is still
-- credit; the part that was spent is lost, and the account is suspended. Final states do not change. Returns how many changed.
create function advance_x402_payments(p_partition smallint, p_account_ids uuid[], p_news x402_news[]) returns integer
language plpgsql
set lock_timeout = '2s'
as $$
declare
  v_now     timestamptz;
  v_news    x402_news;
  v_value   bigint;
  v_taken   bigint;
  v_changed integer := 0;
begin
  perform lock_accounts(p_partition, p_account_ids);
  v_now := clock_timestamp();
  foreach v_news in array p_news loop
    update x402_payments p
      set state = v_news.state, reason = v_news.reason, gateway_id = coalesce(v_news.gateway_id, p.gateway_id),
          batch = coalesce(v_news.batch, p.batch), tx_hash = coalesce(v_news.tx_hash, p.tx_hash), changed_at = v_now
      where p.partition = p_partition and p.payer = v_news.payer and p.nonce = v_news.nonce and p.account_id = v_news.account_id
        and p.state in ('received', 'batched')
      returning p.value into v_value;
    continue when not found;
    v_changed := v_changed + 1;
    if v_news.state = 'completed' then
      update accounts a set paid = a.paid + v_value where a.partition = p_partition and a.id = v_news.account_id;
      update deposits d set tx_hash = v_news.tx_hash where d.partition = p_partition and d.id = v_news.deposit_id;
    elsif v_news.state = 'failed' then
      select least(v_value, greatest(0, a.credit - a.extended)) into v_taken from accounts a
        where a.partition = p_partition and a.id = v_news.account_id;
      update accounts a
        set credit = a.credit - v_taken, deposited = a.deposited - v_taken, covered = a.covered - v_value,
            suspended_at = case when v_taken < v_value then coalesce(a.suspended_at, v_now) else a.suspended_at end,
            suspended_reason = case when v_taken < v_value then coalesce(a.suspended_reason, 'A payment failed after it was accepted and spent.')
                                    else a.suspended_reason end
        where a.partition = p_partition and a.id = v_news.account_id;
      update x402_payments p set lost = v_value - v_taken
        where p.partition = p_partition and p.payer = v_news.payer and p.nonce = v_news.nonce;
      delete from deposits d where d.partition = p_partition and d.id = v_news.deposit_id and d.amount = v_taken;
      update deposits d set amount = d.amount - v_taken where d.partition = p_partition and d.id = v_news.deposit_id;
    end if;
  end loop;
  return v_changed;
end $$;
