-- What place_holds would decide now. Reserves nothing and locks nothing.
create function quote_hold(p_partition smallint, p_account_id uuid, p_key_id uuid, p_amount bigint, p_cap bigint)
returns table (decision text, from_credit bigint, spendable bigint, in_flight bigint, limit_left bigint)
language plpgsql stable as $$
declare
  v_account account_numbers := (read_accounts(p_partition, array[p_account_id]))[1];
  v_key     key_numbers     := (read_keys(p_partition, array[p_key_id], clock_timestamp()))[1];
  v_rules   hold_rules      := read_hold_rules(p_cap, false);
begin
  if v_key.account_id <> p_account_id then
    v_key.account_id := null;
  end if;
  return query select decide_hold(v_rules, v_account, v_key, p_amount), least(v_account.credit, p_amount),
                      v_account.gateway + v_account.credit - v_account.extended, v_account.held + v_account.extended,
                      v_key.limit_amount - v_key.spent - v_key.held;
end $$;
