-- How often a block took the order's transaction and the contract did not pay. Each time costs gas, so it is not done for ever.
alter table burn_intents add column reverts integer not null default 0;
