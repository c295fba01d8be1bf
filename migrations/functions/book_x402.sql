-- A payment of a wallet that fails after it was credited is taken back as far as it is still credit; the part that was spent is lost, and
-- the account is suspended.
create function book_x402(p_partition smallint, p_transfer transfers) returns void
language plpgsql as $$
declare
  v_now   timestamptz := clock_timestamp();
  v_taken bigint;
begin
  if p_transfer.state = 'confirmed' then
    update accounts a set paid = a.paid + p_transfer.amount where a.partition = p_partition and a.id = p_transfer.account_id;
    update deposits d set tx_hash = p_transfer.tx_hash where d.partition = p_partition and d.id = p_transfer.id;
  elsif p_transfer.state = 'failed' then
    select least(p_transfer.amount, greatest(0, a.credit - a.extended)) into v_taken from accounts a
      where a.partition = p_partition and a.id = p_transfer.account_id;
    update accounts a
      set credit = a.credit - v_taken, deposited = a.deposited - v_taken, covered = a.covered - p_transfer.amount,
          lost = a.lost + p_transfer.amount - v_taken
      where a.partition = p_partition and a.id = p_transfer.account_id;
    update accounts a set suspended_at = v_now, suspended_reason = 'A payment failed after it was accepted and spent.'
      where a.partition = p_partition and a.id = p_transfer.account_id and a.suspended_at is null and v_taken < p_transfer.amount;
    delete from deposits d where d.partition = p_partition and d.id = p_transfer.id and d.amount = v_taken;
    update deposits d set amount = d.amount - v_taken where d.partition = p_partition and d.id = p_transfer.id;
  end if;
end $$;
