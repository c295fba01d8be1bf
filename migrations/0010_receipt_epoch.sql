-- The nonce in a receipt follows from the epoch in which it was paid. It is kept with the receipt: raising SETTLEMENT_EPOCH must not
-- change what was said before. Null for receipts of before this column.
alter table settlements add column epoch bigint check (epoch >= 0);

-- Those were written in the epoch that the ledger is in now. One row says so for all of them: nothing is rewritten.
insert into chain_cursors (name, block)
  select 'settlement epoch of the first receipts', coalesce((select c.block from chain_cursors c where c.name = 'settlement epoch'), 0);
