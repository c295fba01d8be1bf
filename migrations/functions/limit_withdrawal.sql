-- The limits of withdrawals and refunds of an account: each costs the relayer gas, whatever its amount. Less than the minimum is paid
-- only if it is everything that is left, and once in 24 hours. A wallet is refunded at most ten times in 24 hours: it can pay the same
-- money in again at no cost. Failed ones do not count. Call it after lock_accounts. Null: no refusal.
create function limit_withdrawal(
  p_partition smallint, p_account_id uuid, p_amount bigint, p_left bigint, p_min bigint, out refusal text, out available_at timestamptz
) language plpgsql as $$
declare
  v_now   timestamptz := clock_timestamp();
  v_open  bigint;
  v_tenth timestamptz;
begin
  select count(*) filter (where t.state not in ('confirmed', 'failed')),
         max(t.created_at) filter (where t.amount < p_min and t.state <> 'failed' and t.created_at > v_now - interval '24 hours')
           + interval '24 hours'
    into v_open, available_at
    from transfers t where t.partition = p_partition and t.account_id = p_account_id and t.kind in ('withdrawal', 'refund');
  select t.created_at into v_tenth
    from transfers t
   where t.partition = p_partition and t.account_id = p_account_id and t.kind in ('withdrawal', 'refund') and t.kind = 'refund'
     and t.state <> 'failed' and t.created_at between v_now - interval '24 hours' and v_now
   order by t.created_at desc offset 9 limit 1;
  refusal := case
    when p_amount < p_min and p_amount < p_left then 'below_min'
    when v_open >= 3 then 'too_many_open'
    when p_amount < p_min and available_at is not null then 'small_too_soon'
    when v_tenth is not null then 'too_many_refunds'
  end;
  if refusal = 'too_many_refunds' then
    available_at := v_tenth + interval '24 hours';
  end if;
end $$;
