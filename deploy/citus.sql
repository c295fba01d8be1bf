-- Spreads the ledger over the workers of a Citus cluster. For the coordinator of a fresh cluster, after the migrations and
-- before the first account:
--
--   penny start (once, to migrate), then: psql "$DATABASE_URL" -f deploy/citus.sql
--
-- and LEDGER_PARTITIONS set to a number well above the number of workers (each partition lives on one worker).
--
-- The rows of one partition lie together on one worker, every function of the ledger touches one partition, and it is
-- run where the partition lies: a batch of holds is one call to one worker. What must be known everywhere (prices, which key
-- hash belongs where, leases, the freeze) is small and stands whole on every worker.
--
-- This file was not run on Citus by this project's tests, which have none: they prove that it applies to the schema and names
-- every table and function (test/citus.test.ts), and that the whole ledger suite passes with LEDGER_PARTITIONS=8.

create extension if not exists citus;

select create_reference_table('prices');
select create_reference_table('api_key_hashes');
select create_reference_table('nodes');
select create_reference_table('ledger_state');
select create_reference_table('sealed_months');
select create_reference_table('chain_cursors');
select create_reference_table('payouts');
select create_reference_table('rail_cursor');
select create_reference_table('solvency');
select create_reference_table('process_metrics');
select create_reference_table('people');
select create_reference_table('sessions');
select create_reference_table('wallets');
select create_reference_table('x402_wallets');
select create_reference_table('x402_sign_ins');
select create_reference_table('passkeys');
select create_reference_table('invitations');
select create_reference_table('management_keys');
select create_reference_table('sign_in_challenges');
select create_reference_table('login_links');
select create_reference_table('device_logins');

select create_distributed_table('accounts', 'partition');
select create_distributed_table('api_keys', 'partition', colocate_with => 'accounts');
select create_distributed_table('holds', 'partition', colocate_with => 'accounts');
-- The parent: its months go with it, also those that are made later.
select create_distributed_table('requests', 'partition', colocate_with => 'accounts');
select create_distributed_table('adjustments', 'partition', colocate_with => 'accounts');
select create_distributed_table('usage_hours', 'partition', colocate_with => 'accounts');
select create_distributed_table('replays', 'partition', colocate_with => 'accounts');
select create_distributed_table('payments', 'partition', colocate_with => 'accounts');
select create_distributed_table('sealed_accounts', 'partition', colocate_with => 'accounts');
select create_distributed_table('sealed_keys', 'partition', colocate_with => 'accounts');
select create_distributed_table('sealed_payments', 'partition', colocate_with => 'accounts');
select create_distributed_table('sweeps', 'partition', colocate_with => 'accounts');
select create_distributed_table('arrivals', 'partition', colocate_with => 'accounts');
select create_distributed_table('deposits', 'partition', colocate_with => 'accounts');
select create_distributed_table('withdrawals', 'partition', colocate_with => 'accounts');
select create_distributed_table('memberships', 'partition', colocate_with => 'accounts');
select create_distributed_table('account_log', 'partition', colocate_with => 'accounts');
select create_distributed_table('x402_payments', 'partition', colocate_with => 'accounts');
select create_distributed_table('events', 'partition', colocate_with => 'accounts');
select create_distributed_table('webhook_endpoints', 'partition', colocate_with => 'accounts');
select create_distributed_table('webhook_deliveries', 'partition', colocate_with => 'accounts');
select create_distributed_table('alert_rules', 'partition', colocate_with => 'accounts');
select create_distributed_table('alerts', 'partition', colocate_with => 'accounts');
select create_distributed_table('alert_emails', 'partition', colocate_with => 'accounts');
select create_distributed_table('alert_mails', 'partition', colocate_with => 'accounts');

-- From here on this file is run again after every upgrade: an upgrade drops the functions that have changed and creates them anew,
-- on the coordinator alone. `renew_lease` and `create_request_months` stay there: they write a table that is whole everywhere,
-- and make tables.

-- Called by the others on the workers.
select create_distributed_function('window_start(text, timestamptz)');
select create_distributed_function('first_request_id(timestamptz)');
select create_distributed_function('decide_hold(hold_rules, account_numbers, key_numbers, bigint)');
select create_distributed_function('read_hold_rules(bigint, boolean)');
select create_distributed_function('require_lease(uuid, timestamptz)');
select create_distributed_function('lock_accounts(smallint, uuid[])');
select create_distributed_function('read_accounts(smallint, uuid[])');
select create_distributed_function('read_keys(smallint, uuid[], timestamptz)');
select create_distributed_function('find_stored(smallint, uuid[])');
select create_distributed_function('find_open(smallint, uuid[], uuid[], extension_call[])');
select create_distributed_function('count_ends(smallint, uuid[], ended_hold[], timestamptz)');
select create_distributed_function('count_usage(smallint, ended_hold[], end_call[])');
select create_distributed_function('write_events(smallint, event_call[])');
select create_distributed_function('tell_started(smallint, uuid[], hold_call[], hold_decision[])');
select create_distributed_function('tell_limits_reached(smallint, uuid[], timestamptz)');
select create_distributed_function('payable_entries(smallint, uuid, bigint, bigint, bigint)');
select create_distributed_function('entry_time(smallint, uuid, bigint)');

-- Called by the service, and run where the partition lies.
select create_distributed_function('place_holds(smallint, uuid, text, bigint, uuid[], uuid[], hold_call[])',
  'p_partition', colocate_with => 'accounts');
select create_distributed_function('extend_holds(smallint, uuid, bigint, uuid[], uuid[], extension_call[])',
  'p_partition', colocate_with => 'accounts');
select create_distributed_function('checkpoint_holds(smallint, checkpoint_call[])',
  'p_partition', colocate_with => 'accounts');
select create_distributed_function('record_tool_calls(smallint, tool_call[])',
  'p_partition', colocate_with => 'accounts');
select create_distributed_function('end_requests(smallint, uuid[], end_call[])',
  'p_partition', colocate_with => 'accounts');
select create_distributed_function('record_refusals(smallint, uuid, uuid[], refusal_call[])',
  'p_partition', colocate_with => 'accounts');
select create_distributed_function('quote_hold(smallint, uuid, uuid, bigint, bigint)',
  'p_partition', colocate_with => 'accounts');
select create_distributed_function('claim_replay(smallint, uuid, uuid, bytea, bytea, uuid, uuid, bigint, uuid)',
  'p_partition', colocate_with => 'accounts');
select create_distributed_function('close_replay(smallint, uuid, bytea, uuid, text)',
  'p_partition', colocate_with => 'accounts');
select create_distributed_function('refund_attempt(smallint, uuid, bytea, uuid)',
  'p_partition', colocate_with => 'accounts');
select create_distributed_function('adjust_account(smallint, uuid, uuid, bigint, text, text, uuid)',
  'p_partition', colocate_with => 'accounts');
select create_distributed_function('credit_deposit(smallint, uuid, uuid, bigint, text)',
  'p_partition', colocate_with => 'accounts');
select create_distributed_function('credit_x402_payment(smallint, x402_payment_call)',
  'p_partition', colocate_with => 'accounts');
select create_distributed_function('pay_and_hold(smallint, uuid, text, bigint, x402_payment_call, hold_call)',
  'p_partition', colocate_with => 'accounts');
select create_distributed_function('advance_x402_payments(smallint, uuid[], x402_news[])',
  'p_partition', colocate_with => 'accounts');
select create_distributed_function('request_refund(smallint, uuid, uuid, bigint)',
  'p_partition', colocate_with => 'accounts');
select create_distributed_function('make_payments(smallint, uuid[], uuid[], bigint, bigint, bigint)',
  'p_partition', colocate_with => 'accounts');
select create_distributed_function('advance_payments(smallint, uuid[], payment_news[])',
  'p_partition', colocate_with => 'accounts');
select create_distributed_function('watch_accounts(smallint, uuid[], integer)',
  'p_partition', colocate_with => 'accounts');
select create_distributed_function('unwatch_accounts(smallint, uuid[])',
  'p_partition', colocate_with => 'accounts');
select create_distributed_function('request_withdrawal(smallint, uuid, uuid, bigint, text, bigint)',
  'p_partition', colocate_with => 'accounts');
select create_distributed_function('advance_withdrawal(smallint, uuid, uuid, text, text, text, bytea, text, bigint)',
  'p_partition', colocate_with => 'accounts');
