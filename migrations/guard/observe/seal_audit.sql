-- fence.seal_audit(entries_max) → the number of entries of fence.audit that it has put into a new seal: those with the
-- lowest ids that are committed and not sealed. fence.sweep_audit calls it, so one caller at a time.
--
-- Entries are not sealed as they are written: each would wait for all open transactions with earlier ones. One that
-- commits late is in a later seal than entries with higher ids.
--
-- Others keep a hash of the seal outside of the database, so it must not be lost: its commit is durable.
create or replace function fence.seal_audit(p_entries_max integer) returns integer
language plpgsql
as $$
declare
    v_ids     bigint[] := array(
        select a.id from fence.audit a where a.seal is null order by a.id limit p_entries_max for update skip locked);
    v_last    fence.audit_seals;
    v_seal    bigint;
    v_at      timestamptz := clock_timestamp();
    v_entries text;
begin
    if v_ids <> '{}' then
        perform fence.commit_durably();
        select * into v_last from fence.audit_seals s order by s.seal desc limit 1;
        v_seal := coalesce(v_last.seal, 0) + 1;
        v_entries := (
            select string_agg(concat_ws(' ', a.id,
                case when a.prunable then '-' else (extract(epoch from a.at) * 1000000)::bigint::text end,
                encode(sha256(convert_to(fence.audit_text(a), 'UTF8')), 'hex')), chr(10) order by a.id)
            from fence.audit a where a.id = any (v_ids));
        insert into fence.audit_seals (seal, at, previous, entries, hash)
        values (v_seal, v_at, coalesce(v_last.hash, ''), v_entries, encode(sha256(convert_to(
            concat(v_seal, ' ', (extract(epoch from v_at) * 1000000)::bigint, ' ', v_last.hash, chr(10), v_entries),
            'UTF8')), 'hex'));
        update fence.audit a set seal = v_seal where a.id = any (v_ids);
    end if;
    return cardinality(v_ids);
end
$$;
