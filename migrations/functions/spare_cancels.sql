-- The part of end_requests that decides about cancels before output (voided is null). Such a cancel is void while the account's
-- allowance of the hour covers its price, and charged otherwise. The allowance grows with what the account has been charged, because
-- accounts are free: 0.01 USDC and 1 % of its charges, at most 0.10 USDC an hour (docs/operations/charge.md).
create function spare_cancels(p_partition smallint, p_account_ids uuid[], p_calls end_call[], p_now timestamptz) returns end_call[]
language plpgsql as $$
declare
  v_hour_ago timestamptz := p_now - interval '1 hour';
  v_call     end_call;
  v_account  uuid;
begin
  for v_place in 1 .. cardinality(p_calls) loop
    v_call := p_calls[v_place];
    continue when v_call.voided is not null;
    -- An end that comes again uses nothing: its hold is gone.
    select h.account_id into v_account
      from holds h where h.partition = coalesce(p_partition, h.partition) and h.id = v_call.id and h.account_id in (select a.id from unnest(p_account_ids) as a (id));
    update accounts a
      set spared = v_call.charged + case when a.spared_since > v_hour_ago then a.spared else 0 end,
          spared_since = case when a.spared_since > v_hour_ago then a.spared_since else p_now end
      where a.partition = coalesce(p_partition, a.partition) and a.id = v_account
        and v_call.charged + case when a.spared_since > v_hour_ago then a.spared else 0 end
            <= least(100000, 10000 + (a.charged - a.given_back) / 100);
    v_call.voided := found;
    if v_call.voided then
      v_call.charged := 0;
      v_call.search_cost := 0;
      v_call.prompt_tokens := null;
      v_call.completion_tokens := null;
      v_call.reasoning_tokens := null;
      v_call.cached_tokens := null;
      v_call.usage_source := null;
      v_call.error_code := null;
    end if;
    p_calls[v_place] := v_call;
  end loop;
  return p_calls;
end $$;
