-- Which order the contract has paid. When the database was lost after the payment, the order may come in a second time.
alter table events add column spec_hash text;
create index events_of_order on events (spec_hash) where spec_hash is not null;

-- How often in a row the contract would have refused the order for the reason in `failure`, and since when.
alter table burn_intents
  add column refusals      integer not null default 0,
  add column refused_since timestamptz;
