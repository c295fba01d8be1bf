-- Challenges by which the holder of an account confirms an owner address. Their message is the address, or the text with it.
alter table sign_in_challenges drop constraint sign_in_challenges_purpose_check;
alter table sign_in_challenges
  add constraint sign_in_challenges_purpose_check check (purpose in ('wallet', 'register', 'sign_in', 'owner'));
