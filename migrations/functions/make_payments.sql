-- Makes the next payment of each of these accounts, over the entries that no payment covers yet: at most `p_entries_max` entries,
-- worth at most `p_value_max`. The rest waits for the next payment. An account with a payment in progress gets none. A sum that is
-- not positive waits for later charges, unless one of the limits cuts the range or the account is in `p_forced` (it withdraws, or
-- is closed): then the seller pays a negative sum, and a sum of 0 only closes the range.
--
-- A wallet has paid in advance over x402. Its payment only closes the range, so that the receipts are signed: nothing is transferred, and
-- `covered`, which counts what the wallet paid in, does not change.
create function make_payments(
  p_partition smallint, p_account_ids uuid[], p_forced uuid[], p_entries_max bigint, p_value_max bigint, p_epoch bigint
) returns integer
language plpgsql
set lock_timeout = '200ms'
as $$
declare
  v_now     timestamptz;
  v_account accounts;
  v_full    bigint;
  v_last    bigint;
  v_value   bigint;
  v_since   timestamptz;
  v_made    integer := 0;
begin
  perform lock_accounts(p_partition, p_account_ids);
  v_now := clock_timestamp();
  for v_account in
    select * from accounts a where a.partition = p_partition and a.id = any (p_account_ids) and a.entries > a.covered_entry
  loop
    continue when exists (select from payments p where p.partition = p_partition and p.account_id = v_account.id
                             and p.state in ('submitted', 'received', 'batched', 'unknown'));
    v_full := v_account.covered_entry + p_entries_max;
    -- Nearly always the payment covers all uncovered entries: the account stores their sum, so no entry has to be read.
    v_last := v_account.entries;
    v_value := v_account.charged - v_account.given_back - v_account.covered;
    if v_account.wallet is not null or v_last > v_full or v_value > p_value_max then
      select e.last_entry, e.value into v_last, v_value
        from payable_entries(p_partition, v_account.id, v_account.covered_entry + 1, least(v_last, v_full), p_value_max) e;
    end if;
    continue when v_account.wallet is null and v_value <= 0 and v_last = v_account.entries and v_last < v_full and v_account.id <> all (p_forced);
    insert into payments (partition, account_id, number, first_entry, last_entry, value, epoch, state, previous_root, created_at,
                          authorized_at, changed_at)
      select p_partition, v_account.id, v_account.payments + 1, v_account.covered_entry + 1, v_last, v_value, p_epoch, 'submitted',
             (select p.root from payments p where p.partition = p_partition and p.account_id = v_account.id and p.state = 'completed'
               order by p.number desc limit 1), v_now, v_now, v_now;
    v_since := null;
    -- If none of the entries is a charge, none of the remaining ones is.
    if v_last < v_account.entries and v_account.unpaid_since is not null then
      v_since := entry_time(p_partition, v_account.id, v_last + 1);
    end if;
    update accounts a
      set payments = a.payments + 1, covered_entry = v_last, covered = a.covered + case when a.wallet is null then v_value else 0 end,
          unpaid_since = v_since
      where a.partition = p_partition and a.id = v_account.id;
    v_made := v_made + 1;
  end loop;
  return v_made;
end $$;
