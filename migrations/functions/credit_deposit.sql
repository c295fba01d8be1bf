-- Credits a deposit once. Returns false when it was already credited.
create function credit_deposit(p_partition smallint, p_id uuid, p_account_id uuid, p_amount bigint, p_source text) returns boolean
language plpgsql as $$
begin
  perform lock_accounts(p_partition, array[p_account_id]);
  insert into deposits (partition, id, account_id, amount, source)
    values (p_partition, p_id, p_account_id, p_amount, p_source)
    on conflict do nothing;
  if not found then
    return false;
  end if;
  update accounts a set gateway = a.gateway + p_amount, deposited = a.deposited + p_amount
    where a.partition = p_partition and a.id = p_account_id;
  perform write_events(p_partition, array[row(p_account_id, 'deposit.credited', jsonb_build_object(
    'id', p_id, 'amount_atomic', p_amount::text, 'source', p_source))::event_call]);
  return true;
end $$;
