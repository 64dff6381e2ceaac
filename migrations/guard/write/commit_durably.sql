-- fence.commit_durably() → the setting. The commit of this transaction waits until it is on disk, whatever the
-- configuration says or becomes before it: synchronous_commit = off is raised to on; other values are kept and fixed
-- for the transaction.
--
-- Called first by each function whose effect is acknowledged (P9, P14). What need not be on disk is set to off after
-- it.
create or replace function fence.commit_durably() returns text
language sql volatile
as $$
    select set_config('synchronous_commit',
        case current_setting('synchronous_commit') when 'off' then 'on'
            else current_setting('synchronous_commit') end, true)
$$;
