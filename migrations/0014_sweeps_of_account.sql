-- A sweep is planned, ended and tied to its deposit by what the account's other sweeps have come to.
create index sweeps_of_account on sweeps (account_id, nonce);
create index deposits_of_transaction on deposits (tx_hash) where tx_hash is not null;
