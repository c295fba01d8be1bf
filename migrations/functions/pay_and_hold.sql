-- Credits an accepted payment and places the hold of the request that it pays, in one transaction. If the
-- payment was credited before, it places no hold for another request: one payment pays one request. A refused hold leaves the value as credit.
create function pay_and_hold(
  p_partition smallint, p_node uuid, p_lease_until timestamptz, p_price_version text, p_cap bigint, p_payment x402_payment_call,
  p_call hold_call
) returns table (place bigint, decision text, authorized bigint, from_credit bigint, created_at timestamptz, spendable bigint,
                 in_flight bigint, limit_left bigint)
language plpgsql as $$
begin
  perform credit_x402_payment(p_partition, p_payment);
  if exists (select from transfers t where t.partition = p_partition and t.id = p_payment.deposit_id
                and t.account_id = p_payment.account_id and t.request_id = p_call.id and t.gateway_id is not null) then
    return query select * from place_holds(p_partition, p_node, p_lease_until, p_price_version, p_cap,
                                           array[p_payment.account_id], array[p_payment.key_id], array[p_call]);
  end if;
end $$;
