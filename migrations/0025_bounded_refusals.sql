-- Refusals are free, so what they leave behind is bounded. A key gets a hundred rows a minute, and what is beyond is only counted.
-- A model's name comes from the client: in the hourly sums, which are kept for good, only models that we have sold have theirs.
alter table api_keys add column refusals integer not null default 0, add column refusals_from timestamptz;
comment on column api_keys.refusals is 'Refusals of the minute that begins at refusals_from.';

-- By this a retry finds its earlier attempts, newest first, however many requests with the same body there are.
create index requests_of_body_newest on requests (account_id, body_hash, created_at desc) where body_hash is not null;
drop index requests_of_body;

create or replace function record_refusals(p_partition smallint, p_node uuid, p_ids uuid[], p_account_ids uuid[], p_key_ids uuid[], p_models text[], p_streams boolean[], p_max_tokens integer[], p_error_codes text[])
 RETURNS void
 LANGUAGE plpgsql
 SET lock_timeout TO '200ms'
AS $$
declare
  v_minute   timestamptz := date_trunc('minute', clock_timestamp());
  v_places   int[];
  v_accounts uuid[];
  v_keys     uuid[];
  v_models   text[];
begin
  perform 1 from accounts a
    where a.partition = p_partition and a.id = any (p_account_ids)
    order by a.id for no key update;

  -- A call whose reply was lost comes again: what has its row already is not counted twice.
  select array_agg(n.place) filter (where n.number + n.before <= 100), array_agg(n.account_id), array_agg(n.key_id),
         array_agg(n.model)
    into v_places, v_accounts, v_keys, v_models
    from (select u.place, u.account_id, u.key_id, coalesce(p.model, '') as model,
                 row_number() over (partition by u.key_id order by u.place) as number,
                 coalesce(case when k.refusals_from = v_minute then k.refusals end, 0) as before
            from unnest(p_ids, p_account_ids, p_key_ids, p_models) with ordinality as u (id, account_id, key_id, model, place)
            left join (select distinct x.model from prices x) p on p.model = u.model
            left join api_keys k on k.partition = p_partition and k.id = u.key_id
           where not exists (select from requests r where r.partition = p_partition and r.id = u.id)) n;

  insert into requests (partition, id, account_id, key_id, node, status, model, stream, max_tokens, error_code,
                        created_at, ended_at)
    select p_partition, u.id, u.account_id, u.key_id, p_node, 'refused', u.model, u.stream, u.max_tokens, u.error_code,
           clock_timestamp(), clock_timestamp()
      from unnest(p_ids, p_account_ids, p_key_ids, p_models, p_streams, p_max_tokens, p_error_codes) with ordinality
           as u (id, account_id, key_id, model, stream, max_tokens, error_code, place)
     where u.place = any (v_places)
  on conflict do nothing;

  insert into usage_hours as h (partition, account_id, hour, key_id, model, refused)
    select p_partition, u.account_id, date_trunc('hour', clock_timestamp(), 'UTC'), u.key_id, u.model, count(*)
      from unnest(v_accounts, v_keys, v_models) as u (account_id, key_id, model)
     group by u.account_id, u.key_id, u.model
  on conflict (partition, account_id, hour, key_id, model) do update set refused = h.refused + excluded.refused;

  update api_keys k
     set refusals = s.count + case when k.refusals_from = v_minute then k.refusals else 0 end, refusals_from = v_minute
    from (select u.id, count(*) as count from unnest(v_keys) as u (id) group by u.id) s
   where k.partition = p_partition and k.id = s.id;
end $$;
