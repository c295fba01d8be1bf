-- A withdrawal or refund that fails is returned as it was taken. When it is paid, the part of the fee that the gateway did not keep is
-- returned. A refund is no longer part of what the wallet has paid in.
create function book_withdrawal(p_partition smallint, p_transfer transfers, p_was text) returns void
language plpgsql as $$
declare
  v_refunded bigint := case p_transfer.kind when 'refund' then p_transfer.amount else 0 end;
begin
  if p_transfer.state = 'failed' then
    update accounts a
      set gateway = a.gateway + p_transfer.amount - p_transfer.from_credit, credit = a.credit + p_transfer.from_credit,
          withdrawn = a.withdrawn - p_transfer.amount, covered = a.covered + v_refunded,
          transfers = a.transfers - (p_transfer.kind = 'refund')::int
      where a.partition = p_partition and a.id = p_transfer.account_id;
  elsif p_transfer.state = 'confirmed' then
    update accounts a
      set gateway = a.gateway + p_transfer.fee_max - p_transfer.fee, withdrawn = a.withdrawn - p_transfer.fee_max + p_transfer.fee,
          paid = a.paid - v_refunded
      where a.partition = p_partition and a.id = p_transfer.account_id;
  end if;
  perform report_withdrawal(p_partition, p_transfer, p_was);
end $$;
