-- Updates payments to the state that the gateway reports. The entries of a failed payment are unpaid again. A final state does not
-- change any more. Returns the payments that changed.
create function advance_payments(p_partition smallint, p_account_ids uuid[], p_news payment_news[])
returns table (account_id uuid, number bigint)
language plpgsql
set lock_timeout = '2s'
as $$
declare
  v_now  timestamptz;
  v_news payment_news;
  v_old  payments;
  v_since timestamptz;
begin
  perform lock_accounts(p_partition, p_account_ids);
  v_now := clock_timestamp();
  foreach v_news in array p_news loop
    select * into v_old from payments p
      where p.partition = p_partition and p.account_id = v_news.account_id and p.number = v_news.number
        and p.state not in ('completed', 'failed');
    continue when not found;
    update payments p
      set state = v_news.state, reason = v_news.reason, gateway_id = coalesce(v_news.gateway_id, p.gateway_id),
          batch = coalesce(v_news.batch, p.batch), batch_position = coalesce(v_news.batch_position, p.batch_position),
          batch_size = coalesce(v_news.batch_size, p.batch_size), batch_root = coalesce(v_news.batch_root, p.batch_root),
          batch_proof = coalesce(v_news.batch_proof, p.batch_proof), tx_hash = coalesce(v_news.tx_hash, p.tx_hash), changed_at = v_now
      where p.partition = p_partition and p.account_id = v_news.account_id and p.number = v_news.number;
    if v_news.state = 'completed' then
      -- A wallet has paid before: its payment moves nothing.
      update accounts a set paid = a.paid + v_old.value
        where a.partition = p_partition and a.id = v_news.account_id and a.wallet is null;
    elsif v_news.state = 'failed' then
      -- A statement of its own: inside the update Citus refuses it.
      v_since := entry_time(p_partition, v_news.account_id, v_old.first_entry);
      update accounts a
        set covered = a.covered - case when a.wallet is null then v_old.value else 0 end, covered_entry = v_old.first_entry - 1, 
            unpaid_since = v_since
        where a.partition = p_partition and a.id = v_news.account_id;
    end if;
    if v_news.state in ('completed', 'failed')
       and exists (select from accounts a where a.partition = p_partition and a.id = v_news.account_id and a.wallet is null) then
      perform write_events(p_partition, array[row(v_news.account_id,
        case v_news.state when 'completed' then 'payment.settled' else 'payment.failed' end, jsonb_build_object(
          'number', v_news.number, 'value_atomic', v_old.value::text, 'first_entry', v_old.first_entry, 'last_entry', v_old.last_entry,
          'tx_hash', '0x' || encode(coalesce(v_news.tx_hash, v_old.tx_hash), 'hex'), 'reason', v_news.reason))::event_call]);
    end if;
    account_id := v_news.account_id;
    number := v_news.number;
    return next;
  end loop;
end $$;
