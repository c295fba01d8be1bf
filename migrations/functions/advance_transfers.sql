-- Takes transfers to the states that the news names. `book_withdrawal` and `book_x402` move the account's money when a transfer ends.
-- Returns the transfers that moved.
--
-- `attempts` is what the caller knows, null if it does not matter: a transfer that was submitted again since does not move, because that
-- attempt may have been accepted. `sent` without the gateway's id begins an attempt. The gateway's id is stored whichever attempt it
-- answers: all are one transfer.
create function advance_transfers(p_partition smallint, p_account_ids uuid[], p_news transfer_news[]) returns setof uuid
language plpgsql
set lock_timeout = '2s'
as $$
declare
  v_time timestamptz;
  v_news transfer_news;
  v_was  transfers;
  v_now  transfers;
begin
  perform lock_accounts(p_partition, p_account_ids);
  v_time := clock_timestamp();
  foreach v_news in array p_news loop
    select * into v_was from transfers t
      where t.partition = p_partition and t.id = v_news.id and is_transfer_step(t.kind, t.state, v_news.state)
        and (v_news.attempts is null or v_news.attempts = t.attempts or v_news.gateway_id is not null);
    continue when not found;
    -- The state and the attempt are compared again: no account's lock protects a payout. An unknown fee counts as kept in full.
    update transfers t
      set state = v_news.state, reason = v_news.reason, gateway_id = coalesce(v_news.gateway_id, t.gateway_id),
          tx_hash = coalesce(v_news.tx_hash, t.tx_hash), signature = coalesce(v_news.signature, t.signature),
          fee = case when v_news.state = 'confirmed' then coalesce(v_news.fee, t.fee_max) end,
          authorized_at = coalesce(v_news.authorized_at, t.authorized_at), changed_at = v_time,
          attempts = t.attempts + case when v_news.state = 'sent' and v_news.gateway_id is null then 1 else 0 end,
          sent_at = case when v_news.state = 'sent' and t.sent_at is null then v_time else t.sent_at end
      where t.partition = p_partition and t.id = v_was.id and t.state = v_was.state and t.attempts = v_was.attempts
      returning * into v_now;
    continue when not found;
    case
      when v_was.kind in ('withdrawal', 'refund') then perform book_withdrawal(p_partition, v_now, v_was.state);
      when v_was.kind = 'x402' then perform book_x402(p_partition, v_now);
      else null; -- A payout is of no account.
    end case;
    return next v_was.id;
  end loop;
end $$;
