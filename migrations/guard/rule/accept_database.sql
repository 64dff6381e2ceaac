-- fence.accept_database(above) makes gateways use this database again, although another one had taken over from it. It
-- is for operators: docs/runbooks/FencegateDatabaseWentBack.md says when. What was granted and written in the other
-- database is given up. Tokens jump past all that were issued until now, and past above: the newest token of the other database, if it is
-- known. → a value below the next token.
--
-- Raises 22003 if no tokens above are left.
create or replace function fence.accept_database(above bigint default 0) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    perform fence.commit_durably();
    update fence.database_identity i
    set accepted_at = clock_timestamp(), timeline = 0, -- so tokens jump
        superseded_system = null, superseded_timeline = null, superseded_by_system = null,
        superseded_by_timeline = null, superseded_at = null;
    perform setval('fence.tokens', greatest((select t.last_value from fence.tokens t), above));
    perform fence.note_jump();
    perform fence.note_action('database_accepted', '', jsonb_build_object('above', above));
    return (select t.last_value from fence.tokens t);
end
$$;
