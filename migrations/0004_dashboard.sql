-- The dashboard: who may sign in to an account, who is signed in, and the indexes that keep its log and charts fast.
--
-- Whoever signs in is looked up before the partition of the account is known, so these tables are not partitioned: they
-- are small and stand whole on every node, like the hashes of API keys.

-- A browser that is signed in. The token itself is in its cookie alone; here is its hash.
create table sessions (
  token_hash   bytea       primary key check (length(token_hash) = 32),
  id           uuid        not null unique,
  partition    smallint    not null,
  account_id   uuid        not null,
  method       text        not null check (method in ('wallet', 'passkey', 'link', 'local')),
  browser      text        check (length(browser) <= 200),
  created_at   timestamptz not null default clock_timestamp(),
  last_used_at timestamptz not null default clock_timestamp(),
  expires_at   timestamptz not null
);
create index sessions_of_account on sessions (account_id);
create index sessions_by_age on sessions (expires_at);

create table wallets (
  address      text        primary key check (address ~ '^0x[0-9a-f]{40}$'),
  partition    smallint    not null,
  account_id   uuid        not null,
  added_at     timestamptz not null default clock_timestamp(),
  last_used_at timestamptz
);
create index wallets_of_account on wallets (account_id);

create table passkeys (
  credential_id bytea       primary key check (length(credential_id) between 16 and 1023),
  id            uuid        not null unique,
  partition     smallint    not null,
  account_id    uuid        not null,
  name          text        not null check (length(name) between 1 and 200),
  public_key    bytea       not null check (length(public_key) <= 2048), -- SubjectPublicKeyInfo
  algorithm     integer     not null check (algorithm in (-7, -8, -257)),
  sign_count    bigint      not null check (sign_count >= 0),
  added_at      timestamptz not null default clock_timestamp(),
  last_used_at  timestamptz
);
create index passkeys_of_account on passkeys (account_id);

-- What somebody who wants to sign in must sign, once. Deleted when it is answered, before the answer is looked at.
create table sign_in_challenges (
  nonce      text        primary key check (length(nonce) between 22 and 64),
  purpose    text        not null check (purpose in ('wallet', 'register', 'sign_in')),
  message    text        check (length(message) <= 2000),
  expires_at timestamptz not null
);
create index sign_in_challenges_by_age on sign_in_challenges (expires_at);

-- One-time links: printed by an operator's command, or by the sandbox at its start.
create table login_links (
  token_hash bytea       primary key check (length(token_hash) = 32),
  partition  smallint    not null,
  account_id uuid        not null,
  expires_at timestamptz not null
);

-- A disabled key is a revoked one that can be enabled again: whoever places holds need not know the difference.
alter table api_keys add column disabled boolean not null default false,
  add constraint api_keys_disabled_is_revoked check (not disabled or revoked_at is not null);

-- A key that was rolled has several secrets for a while, one limit and one history.
alter table api_key_hashes add column hint text, add column expires_at timestamptz;
create index api_key_hashes_of_key on api_key_hashes (key_id);

-- The log is read backwards by id, which begins with the time. Rows that most accounts have few of are found without passing
-- over all the others.
create index requests_of_key on requests (key_id, id);
-- With what is summed about them, so that the sums need not read the rows themselves. A row comes in here once, when it ends.
create index requests_not_succeeded on requests (account_id, id)
  include (status, error_code, key_id, model, created_at, quote, charged) where status not in ('held', 'succeeded');
create index requests_with_search on requests (account_id, id) where search_calls > 0;
create index settlements_of_transaction on settlements (tx_hash) where tx_hash is not null;
