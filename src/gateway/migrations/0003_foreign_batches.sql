-- Batches that the chain has and these books have not sent: another gateway's on the same contract, or our own from before the
-- books were lost. The log names only who paid under which nonce; to whom and how much is read from the transaction.
create table foreign_batches (
  chain_batch_id   bigint      primary key,
  transaction_hash text        not null,
  is_read          boolean     not null default false,
  -- When the transaction was last asked for.
  asked_at         timestamptz not null default '-infinity'
);
create index foreign_batches_unread on foreign_batches (asked_at, chain_batch_id desc) where not is_read;

-- An authorization stands here until its batch has been read, then among the transfers.
alter table foreign_authorizations add column batch bigint references foreign_batches;
create index foreign_authorizations_of_batch on foreign_authorizations (batch);
alter table transfers add column foreign_batch bigint references foreign_batches;
