-- The longest range of an account's entries from `p_first` up to at most `p_last` that is worth no more than `p_value_max`: its
-- end, and its value (charges minus refunds). A first entry that alone exceeds the limit forms its own range.
create function payable_entries(
  p_partition smallint, p_account_id uuid, p_first bigint, p_last bigint, p_value_max bigint, out last_entry bigint, out value bigint
)
language plpgsql stable as $$
begin
  select s.entry, s.total into last_entry, value
    from (select e.entry, (sum(e.amount) over (order by e.entry))::bigint as total
            from (select r.entry, r.charged as amount from requests r
                   where r.partition = p_partition and r.account_id = p_account_id and r.entry between p_first and p_last
                   union all
                  select x.entry, -x.amount from adjustments x
                   where x.partition = p_partition and x.account_id = p_account_id and x.entry between p_first and p_last) e) s
   where s.total <= p_value_max or s.entry = p_first
   order by s.entry desc limit 1;
end $$;
