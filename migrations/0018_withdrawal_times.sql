-- How long the last withdrawals took is told to whoever is about to make one: without this, all that were ever paid would be read.
create index withdrawals_confirmed on withdrawals (changed_at) where state = 'confirmed';
