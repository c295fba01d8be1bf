-- A refund that fails is credit again. One that is paid is no longer part of what the wallet has paid in.
create function book_refund(p_partition smallint, p_transfer transfers, p_was text) returns void
language plpgsql as $$
begin
  if p_transfer.state = 'failed' then
    update accounts a
      set credit = a.credit + p_transfer.amount, withdrawn = a.withdrawn - p_transfer.amount, covered = a.covered + p_transfer.amount,
          transfers = a.transfers - 1
      where a.partition = p_partition and a.id = p_transfer.account_id;
  elsif p_transfer.state = 'confirmed' then
    update accounts a set paid = a.paid - p_transfer.amount where a.partition = p_partition and a.id = p_transfer.account_id;
  end if;
  perform report_withdrawal(p_partition, p_transfer, p_was);
end $$;
