-- Records the progress of open streams: after a crash they are charged up to here. A checkpoint never goes back.
create function checkpoint_holds(p_partition smallint, p_calls checkpoint_call[]) returns void
language plpgsql
-- Planner switches: see place_holds.
set enable_seqscan = off set enable_nestloop = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
as $$
begin
  update holds h
    set prompt_tokens = greatest(h.prompt_tokens, c.prompt_tokens), completion_tokens = greatest(h.completion_tokens, c.completion_tokens)
    from unnest(p_calls) as c
    where h.partition = coalesce(p_partition, h.partition) and h.id = any (array(select x.id from unnest(p_calls) as x)) and h.id = c.id;
end $$;
