-- The steps that a transfer may take, as data: from each state, the states that may follow. Why: src/settlement/transfers/machine.ts.
create function is_transfer_step(p_from text, p_to text) returns boolean
language sql immutable parallel safe as $$
  select p_to = any (case p_from
    when 'requested' then '{requested,sent,received,batched,confirmed,failed}'
    when 'sent' then '{sent,received,batched,confirmed,failed}'
    when 'received' then '{sent,received,batched,confirmed,failed}'
    when 'batched' then '{sent,received,batched,confirmed,failed}'
    else '{}' end::text[])
$$;
