-- Adds calls of our tools to their open requests: after a crash, a search that ran is charged together with what its request had
-- delivered. Recording a call again changes nothing.
create function record_tool_calls(p_partition smallint, p_calls tool_call[]) returns void
language plpgsql
-- Planner switches: see place_holds.
set enable_seqscan = off set enable_nestloop = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
as $$
begin
  update holds h set tool_calls = c.calls || coalesce(h.tool_calls, '{}')
    from (select x.request_id, jsonb_object_agg(x.number, jsonb_build_object('kind', x.kind, 'status', x.status, 'cost', x.cost,
                                                                             'results', x.results)) as calls
            from unnest(p_calls) as x group by x.request_id) c
    where h.partition = coalesce(p_partition, h.partition) and h.id = any (array(select x.request_id from unnest(p_calls) as x)) and h.id = c.request_id;
end $$;
