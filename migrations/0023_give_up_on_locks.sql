-- A batch waits at most this long for an account that another session keeps locked. It is then run again without that account, so
-- that no account can delay the requests of all others (src/db/batch.ts).
alter function place_holds set lock_timeout = '200ms';
alter function extend_holds set lock_timeout = '200ms';
alter function end_requests set lock_timeout = '200ms';
alter function record_refusals set lock_timeout = '200ms';
