-- Creates the partitions of `requests` for `p_months` months, starting with the one before `p_now`, and returns how many were
-- created. Must run ahead of time: once `requests_other` has a row of a month, that month's partition is no longer created, and its
-- rows stay there. A partition whose lock times out is created in a later run. A closed month gets no more requests.
create function create_request_months(p_now timestamptz, p_months integer) returns integer
language plpgsql
set lock_timeout = '2s'
as $$
declare
  v_month timestamp := date_trunc('month', p_now at time zone 'UTC') - interval '1 month';
  v_name  text;
  v_made  integer := 0;
begin
  for i in 1 .. p_months loop
    v_name := to_char(v_month, '"requests_"YYYY_MM');
    if to_regclass(v_name) is null
       and first_request_id((v_month + interval '1 month') at time zone 'UTC') > (select l.closed_before from ledger_state l) then
      begin
        execute format('create table %I partition of requests for values from (%L) to (%L)', v_name,
                       first_request_id(v_month at time zone 'UTC'), first_request_id((v_month + interval '1 month') at time zone 'UTC'));
        v_made := v_made + 1;
      exception when check_violation or duplicate_table or lock_not_available then
        null;
      end;
    end if;
    v_month := v_month + interval '1 month';
  end loop;
  return v_made;
end $$;
