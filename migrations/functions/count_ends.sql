-- The part of end_requests that moves the money: in the accounts, and in the spending of their keys. It counts the events that
-- report_ended will write, and returns the accounts that get them: another update or look would cost as much as this one.
create function count_ends(p_partition smallint, p_account_ids uuid[], p_ended ended_hold[], p_now timestamptz)
returns table (account_id uuid, wants_each boolean)
language plpgsql as $$
begin
  return query with counted as (update accounts a
    set gateway = a.gateway + s.gateway, credit = a.credit + s.credit, held = a.held - s.held, extended = a.extended - s.extended,
        charged = a.charged + s.charged, entries = a.entries + s.entries,
        events = a.events + case when 'request.ended' = any (a.event_types) then s.entries when a.watched_until is not null then 1 else 0 end,
        unpaid_since = case when s.charged > 0 and a.unpaid_since is null then p_now else a.unpaid_since end
    from (select e.account_id as id, sum(case when e.voided then e.authorized else 0 end) as gateway,
                 sum(case when e.voided then e.from_credit else e.quote - e.charged end) as credit, sum(e.quote) as held,
                 sum(e.extended) as extended, sum(e.charged) as charged, count(*) as entries
            from unnest(p_ended) as e group by e.account_id) s
    where a.partition = coalesce(p_partition, a.partition) and a.id = any (p_account_ids) and a.id = s.id
    returning a.id, coalesce('request.ended' = any (a.event_types), false) as wants_each, a.watched_until is not null as is_watched)
    select c.id, c.wants_each from counted c where c.wants_each or c.is_watched;

  -- Spending in an earlier window no longer counts.
  update api_keys k
    set held = k.held - s.held, spent = k.spent + s.charged
    from (select e.key_id as id, e.key_window, sum(e.quote + e.extended) as held, sum(e.charged) as charged
            from unnest(p_ended) as e group by e.key_id, e.key_window) s
    where k.partition = coalesce(p_partition, k.partition) and k.id = any (array(select e.key_id from unnest(p_ended) as e)) and k.id = s.id
      and k.window_start = s.key_window;
end $$;
