-- The rules that decide_hold applies, besides account and key.
create function read_hold_rules(p_cap bigint, p_is_extension boolean) returns hold_rules
language sql stable as $$
  select row(l.frozen_at is not null, p_cap, l.unsettled_cap, p_is_extension)::hold_rules from ledger_state l
$$;
