-- Withdrawals are sent by `turn`: the n-th waiting order of a depositor has a later turn than the first of every other one, so
-- that many orders of one depositor do not delay those of others.
alter table burn_intents add column turn bigint not null default 0;
drop index burn_intents_waiting;
create index burn_intents_waiting on burn_intents (turn, created_at) where state = 'pending';
create index burn_intents_of_depositor on burn_intents (depositor, created_at);
