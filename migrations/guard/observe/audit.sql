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

-- fence.audit_text(entry) → the JSON of an entry of fence.audit, whose hash its seal has. The same entry has the same
-- text on every version of PostgreSQL and in every session.
create or replace function fence.audit_text(p_entry fence.audit) returns text
language sql stable
as $$
    select jsonb_build_object(
        'id', p_entry.id, 'at', to_char(p_entry.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
        'principal', p_entry.principal, 'address', p_entry.address, 'action', p_entry.action, 'name', p_entry.name,
        'details', p_entry.details)::text
$$;

-- fence.sweep_audit(rows_max, retention, prunable_max) → done: the number of entries of fence.audit deleted; more. See
-- fence.sweep. It seals what is not sealed yet (fence.seal_audit). Of what is sealed, it deletes entries that are older
-- than the retention, and the prunable ones that are not among the newest prunable_max of all entries: nobody can fill
-- the log by such actions. It deletes no younger entry of a principal or of a role.
--
-- Of the seals that are older than the retention and have no entries any more, it keeps the newest one: a chain whose
-- first seal is younger was cut.
--
-- Reads from the oldest entry on, and no more than rows_max of each kind.
create or replace function fence.sweep_audit(
    p_rows_max integer, p_retention interval, p_prunable_max bigint, out done bigint, out more boolean)
language plpgsql
as $$
declare
    c_sealed_max constant integer := 100; -- in one seal, which readers get as a whole
    v_before  timestamptz := clock_timestamp() - p_retention;
    v_through bigint := (select max(a.id) from fence.audit a) - p_prunable_max;
    v_sealed  integer := fence.seal_audit(least(p_rows_max, c_sealed_max));
    v_old     bigint;
begin
    delete from fence.audit a
    where a.id = any (array(
        select o.id from fence.audit o
        where o.at < v_before and o.seal is not null
            and o.id = any (array(select e.id from fence.audit e order by e.id limit p_rows_max))
        for update skip locked));
    get diagnostics v_old = row_count;
    delete from fence.audit a
    where a.id = any (array(
        select e.id from fence.audit e where e.prunable and e.seal is not null and e.id <= v_through
        order by e.id limit p_rows_max for update skip locked));
    get diagnostics done = row_count;
    delete from fence.audit_seals s
    where s.seal < (
        select max(o.seal) from (
            select e.seal, e.at from fence.audit_seals e order by e.seal limit c_sealed_max) o where o.at < v_before)
        and not exists (select from fence.audit a where a.seal <= s.seal);
    more := p_rows_max in (v_old, done) or v_sealed in (p_rows_max, c_sealed_max);
    done := v_old + done;
end
$$;
