-- What bounds the work of providers that no customer pays for.

-- Counted with the ends of the requests, so that all processes share one allowance.
alter table accounts
  add column spared       bigint      not null default 0 check (spared >= 0),
  add column spared_since timestamptz;
comment on column accounts.spared is 'List price of the cancels before output that were not charged in the hour from spared_since on. spare_cancels bounds it.';

create table reasoning_samples (
  provider text     not null,
  model    text     not null,
  effort   text     not null,
  basis    text     not null,
  samples  float8[] not null check (cardinality(samples) between 1 and 64),
  primary key (provider, model, effort, basis)
);
comment on table  reasoning_samples is 'How much providers reason without showing it, learned from whole answers: the newest samples, oldest first. Answers that are cut off are billed by it.';
comment on column reasoning_samples.basis is 'sealed: tokens per byte of encrypted reasoning. A number: tokens of answers whose provider was silent for this many seconds, to twice as many, before its first output.';
