-- When its holder closed the account. Nothing that admits a request reads it: its keys are revoked, and that is what refuses them.
alter table accounts add column closed_at timestamptz;
