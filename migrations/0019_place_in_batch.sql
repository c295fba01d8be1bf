-- Where in its batch a payment stands, as the gateway says: of payments that were settled before, and of gateways that do not say, it is
-- not known. Without checks: PostgreSQL reads them again for each statement that writes here, and no money depends on it.
alter table settlements add column batch_position integer, add column batch_size integer;

-- As it was, with the place. Nodes of the version before call it without: hence the defaults.
drop function settle_payments(smallint, uuid[], uuid[], text[], text[], bigint[], bytea[], bytea[], bytea[], text[]);
create function settle_payments(
  p_partition smallint, p_account_ids uuid[], p_ids uuid[], p_states text[], p_rail_ids text[], p_batches bigint[],
  p_tx_hashes bytea[], p_roots bytea[], p_proofs bytea[], p_reasons text[], p_positions int[] default null, p_sizes int[] default null
) returns table (id uuid, state text) language plpgsql
set enable_seqscan = off set enable_nestloop = off set enable_mergejoin = off as $$
declare
  v_ids      uuid[];
  v_accounts uuid[];
  v_final    bigint[];
  v_failed   bigint[];
begin
  perform 1 from accounts a
    where a.partition = p_partition and a.id = any (p_account_ids)
    order by a.id for no key update;

  select array_agg(s.id), array_agg(s.account_id),
         array_agg(case when u.state in ('completed', 'failed') then s.value else 0 end),
         array_agg(case when u.state = 'failed' then s.value else 0 end)
    into v_ids, v_accounts, v_final, v_failed
    from settlements s
    join unnest(p_ids, p_states) as u (id, state) on u.id = s.id
   where s.partition = p_partition and s.id = any (p_ids) and s.revision = 0 and s.account_id = any (p_account_ids)
     and s.state not in ('none', 'voided', 'completed', 'failed');

  update settlements s
    set state = u.state, rail_id = coalesce(u.rail_id, s.rail_id), batch = coalesce(u.batch, s.batch),
        tx_hash = coalesce(u.tx_hash, s.tx_hash), receipt_root = coalesce(u.root, s.receipt_root),
        receipt_proof = coalesce(u.proof, s.receipt_proof), reason = u.reason,
        batch_position = coalesce(u.position, s.batch_position), batch_size = coalesce(u.size, s.batch_size),
        changed_at = clock_timestamp()
    from unnest(p_ids, p_states, p_rail_ids, p_batches, p_tx_hashes, p_roots, p_proofs, p_reasons, p_positions, p_sizes)
         as u (id, state, rail_id, batch, tx_hash, root, proof, reason, position, size)
    where s.partition = p_partition and s.id = any (v_ids) and s.revision = 0 and s.id = u.id;

  update accounts a
    set unsettled = a.unsettled - t.final, gateway = a.gateway + t.failed, credit = a.credit - t.failed,
        authorized = a.authorized - t.failed
    from (select u.id, sum(u.final) as final, sum(u.failed) as failed
            from unnest(v_accounts, v_final, v_failed) as u (id, final, failed)
           group by u.id having sum(u.final) > 0) t
    where a.partition = p_partition and a.id = any (p_account_ids) and a.id = t.id;

  return query select u.id, u.state from unnest(p_ids, p_states) as u (id, state) where u.id = any (v_ids);
end $$;
