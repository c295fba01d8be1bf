-- What an operator needs beside the ledger: numbers that processes without a port tell, indexes over what is rare.

-- Settlement has no address that could be scraped: it leaves its numbers here, and the service's page shows them.
create table told_gauges (
  name       text             primary key,
  value      double precision not null,
  changed_at timestamptz      not null default clock_timestamp()
);

-- Found without passing over all the others; rows enter them seldom, and none on the way of a request.
create index settlements_failed on settlements (changed_at) where state = 'failed';
create index arrivals_waiting on arrivals (seen_at) where sweep_id is null;
