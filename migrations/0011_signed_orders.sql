-- An order to the gateway may be lost on its way there, or its reply. It is asked again with the same bytes until the gateway says what
-- it has. The signature is kept from the moment it may have been handed in: should the owner have changed by then, the signer would
-- not give it again. It pays the recipient that it was given for, once, and nobody else.
alter table withdrawals add column signature bytea check (length(signature) = 65);
alter table payouts     add column signature bytea check (length(signature) = 65);
