-- Refusals may be deleted when they are old: no money depends on them. Rows with money are kept for good.
create index requests_refused on requests (created_at) where status = 'refused';
