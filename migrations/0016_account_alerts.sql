-- Below what the holder of an account is warned. A table of its own: accounts are written by every batch, this one by hand. An account
-- without a row is warned as src/ledger/alerts.ts says; null is a warning that its holder has turned off.
create table account_alerts (
  partition     smallint not null,
  account_id    uuid     not null,
  balance_below bigint   check (balance_below > 0),
  days_below    smallint check (days_below between 1 and 365),
  primary key (partition, account_id),
  foreign key (partition, account_id) references accounts (partition, id)
);
