-- The admission rule: whether the amount can be reserved for a request, or why not. It is the only one: holds, extensions of holds
-- and quotes all call it. PostgreSQL inlines it. An extension belongs to an admitted request: it may continue even if its key was
-- revoked, its account suspended or settlement delayed since then.
create function decide_hold(p_rules hold_rules, p_account account_numbers, p_key key_numbers, p_amount bigint) returns text
language sql immutable parallel safe as $$
  select case
    when p_rules.is_frozen then 'ledger_frozen'
    when p_account.gateway is null or p_key.account_id is null then 'invalid_api_key'
    when p_key.refusal is not null and not p_rules.is_extension then p_key.refusal
    when p_account.is_suspended and not p_rules.is_extension then 'account_suspended'
    when p_amount > p_rules.cap and not p_rules.is_extension then 'quote_exceeds_cap'
    when p_key.spent + p_key.held + p_amount > p_key.limit_amount then 'key_limit_exceeded'
    when p_amount > p_account.gateway + p_account.credit - p_account.extended then 'insufficient_balance'
    when p_account.held + p_account.extended + p_amount > p_rules.cap then 'in_flight_cap'
    when p_account.unsettled > p_rules.unsettled_cap and not p_rules.is_extension then 'settlement_delayed'
    else 'held'
  end
$$;
