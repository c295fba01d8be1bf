-- Why a key was refused, on its page: without this, whatever of the account had not succeeded was read for it.
create index requests_refused_of_key on requests (key_id, id) include (account_id, error_code, created_at) where status = 'refused';
