-- The requests of one batch, as an event lists them for a live view: their number, and the newest 50. A page shows no more.
create function live_requests(p_ids uuid[]) returns jsonb
language sql stable parallel safe as $$
  select jsonb_build_object('count', cardinality(p_ids), 'ids', to_jsonb(p_ids[greatest(1, cardinality(p_ids) - 49):]))
$$;
