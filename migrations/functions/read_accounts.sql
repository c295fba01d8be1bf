-- The numbers of these accounts that decide_hold needs, in order.
create function read_accounts(p_partition smallint, p_ids uuid[]) returns account_numbers[]
language plpgsql stable as $$
declare
  v_accounts account_numbers[];
begin
  select array_agg(row(a.gateway, a.credit, a.held, a.extended, a.charged - a.given_back - a.paid, a.suspended_at is not null)::account_numbers
                   order by i.place)
    into v_accounts
    from unnest(p_ids) with ordinality as i (id, place)
    left join accounts a on a.partition = coalesce(p_partition, a.partition) and a.id = any (p_ids) and a.id = i.id;
  return v_accounts;
end $$;
