-- The part of end_requests that updates the hourly sums, in the hour in which each request was created.
create function count_usage(p_partition smallint, p_ended ended_hold[], p_calls end_call[]) returns void
language plpgsql as $$
begin
  insert into usage_hours as h (partition, account_id, hour, key_id, model, provider, succeeded, failed, cancelled, quote, charged, search_cost,
                                search_calls, fetch_calls, prompt_tokens, completion_tokens, reasoning_tokens, cached_tokens, timed,
                                first_token_ms, total_ms, attempts, upstream_cost, costed)
    select coalesce(p_partition, min(partition_of(e.id))), e.account_id, e.hour, e.key_id, e.model, coalesce(c.provider, ''),
           count(*) filter (where c.status = 'succeeded'), count(*) filter (where c.status = 'failed'),
           count(*) filter (where c.status = 'cancelled'), sum(e.quote), sum(c.charged), sum(c.search_cost), sum(c.search_calls),
           sum(c.fetch_calls), coalesce(sum(c.prompt_tokens), 0), coalesce(sum(c.completion_tokens), 0),
           coalesce(sum(c.reasoning_tokens), 0), coalesce(sum(c.cached_tokens), 0), count(c.first_token_ms),
           coalesce(sum(c.first_token_ms), 0), coalesce(sum(c.total_ms), 0), coalesce(sum(c.attempts), 0),
           coalesce(sum(c.upstream_cost), 0),
           coalesce(sum(c.charged - c.search_cost) filter (where c.upstream_cost is not null), 0)
      from unnest(p_ended) as e join unnest(p_calls) as c on c.id = e.id
     group by e.account_id, e.hour, e.key_id, e.model, coalesce(c.provider, '')
  on conflict (partition, account_id, hour, key_id, model, provider) do update
    set succeeded = h.succeeded + excluded.succeeded, failed = h.failed + excluded.failed,
        cancelled = h.cancelled + excluded.cancelled, quote = h.quote + excluded.quote, charged = h.charged + excluded.charged,
        search_cost = h.search_cost + excluded.search_cost, search_calls = h.search_calls + excluded.search_calls,
        fetch_calls = h.fetch_calls + excluded.fetch_calls, prompt_tokens = h.prompt_tokens + excluded.prompt_tokens,
        completion_tokens = h.completion_tokens + excluded.completion_tokens,
        reasoning_tokens = h.reasoning_tokens + excluded.reasoning_tokens,
        cached_tokens = h.cached_tokens + excluded.cached_tokens, timed = h.timed + excluded.timed,
        first_token_ms = h.first_token_ms + excluded.first_token_ms, total_ms = h.total_ms + excluded.total_ms,
        attempts = h.attempts + excluded.attempts, upstream_cost = h.upstream_cost + excluded.upstream_cost,
        costed = h.costed + excluded.costed;
end $$;
