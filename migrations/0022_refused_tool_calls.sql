-- A call of web_search or web_fetch that was not run is a line of its request too, so that the customer can see why: too few of
-- max_tokens were left to answer with a result, or the money for it could not be held.
alter table tool_calls
  drop constraint tool_calls_status_check,
  add constraint tool_calls_status_check check (
    status = any ('{completed,failed,max_tokens_spent,budget_spent}')
  ) not valid;
