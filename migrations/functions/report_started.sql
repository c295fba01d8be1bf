-- The part of place_holds that writes request.started, for accounts with an open live view. The accounts are locked.
create function report_started(p_partition smallint, p_account_ids uuid[], p_calls hold_call[], p_decisions hold_decision[]) returns void
language plpgsql as $$
declare
  v_watched uuid[];
begin
  -- Nearly always nobody watches any account. To ask for these accounts would cost an index lookup for each.
  if not exists (select from accounts a where a.partition = coalesce(p_partition, a.partition) and a.watched_until is not null) then
    return;
  end if;
  v_watched := array(select a.id from accounts a
                      where a.partition = coalesce(p_partition, a.partition) and a.id = any (p_account_ids) and a.watched_until is not null);
  if v_watched <> '{}' then
    perform write_events(p_partition, array(
      select row(p_account_ids[x.account_of], 'request.started', jsonb_build_object('id', 'req_' || replace(x.id::text, '-', '')))::event_call
        from rows from (unnest(p_calls), unnest(p_decisions)) with ordinality
             as x (id, account_of, key_of, quote, model, stream, max_tokens, body_hash, options_version, decision, authorized, from_credit,
                   created_at, spendable, in_flight, limit_left, place)
       where x.decision = 'held' and p_account_ids[x.account_of] = any (v_watched) order by x.place));
  end if;
end $$;
