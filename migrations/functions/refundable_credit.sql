-- The unused credit of a wallet account that can be paid back. Every payment and refund is a transfer that costs the relayer up to
-- `p_transfer_gas`, this refund included. What charges have not brought in of that stays as credit, which pays for requests: otherwise a
-- wallet could pay and be refunded in turn, for nothing but the relayer's gas. 0 for other accounts.
create function refundable_credit(p_partition smallint, p_account_id uuid, p_transfer_gas bigint) returns bigint
language plpgsql stable as $$
declare
  v_account accounts;
begin
  select * into v_account from accounts a where a.partition = p_partition and a.id = p_account_id and a.wallet is not null;
  return greatest(0, v_account.credit - v_account.extended
    - greatest(0, p_transfer_gas * (v_account.transfers + 1) - (v_account.charged - v_account.given_back)));
end $$;
