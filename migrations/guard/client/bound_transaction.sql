-- fence.bound_transaction(setting, most) bounds how long the transaction may keep what it has locked, because others wait
-- for that: PostgreSQL ends the session when the transaction is idle for longer (25P03), or from version 17 on lasts
-- longer from now (25P04). The bound is that of the setting, a time as PostgreSQL writes it; most if it is not set; none
-- if it is 0. Shorter ones that the session has stay. The end of the transaction, or a rollback to a savepoint before,
-- takes it back.
--
-- Called by functions of clients alone: transactions of gateways end at once. fence.guard does the same in place.
--
-- Raises 22007 if the setting is no time.
create or replace function fence.bound_transaction(p_setting text, p_most interval) returns void
language plpgsql set search_path = pg_catalog, pg_temp
as $$
declare
    v_most interval := coalesce(nullif(current_setting(p_setting, true), '')::interval, p_most);
begin
    if v_most > '0' and current_setting('idle_in_transaction_session_timeout')::interval not between '1 ms' and v_most then
        perform set_config('idle_in_transaction_session_timeout', extract(epoch from v_most * 1000)::bigint::text, true);
    end if;
    if v_most > '0' and current_setting('transaction_timeout', true) = '0' then
        perform set_config('transaction_timeout', extract(epoch from v_most * 1000)::bigint::text, true);
    end if;
end
$$;
