-- The steps that a transfer may take, as data: from each state, the states that may follow. Why: src/settlement/transfers/machine.ts. A
-- payment over x402 is `received` when it is credited (credit_x402_payment), and is never submitted by us for the first time.
create function is_transfer_step(p_kind text, p_from text, p_to text) returns boolean
language sql immutable parallel safe as $$
  select p_to = any (case
    when p_from in ('confirmed', 'failed') then '{}'
    when p_kind = 'x402' then case p_from when 'sent' then '{}' else '{received,batched,confirmed,failed}' end
    when p_from = 'requested' then '{requested,sent,received,batched,confirmed,failed}'
    else '{sent,received,batched,confirmed,failed}' end::text[])
$$;
