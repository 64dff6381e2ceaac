-- fence.supersede(by_system, by_timeline, accepted) marks this database: a gateway has seen that another one has taken
-- over from it. From then on nothing is granted here (fence.jump), and gateways do not use it. The mark is about this
-- system identifier and timeline: it is void once the database is promoted again, and in copies that are.
--
-- accepted  when the database was accepted as of what the gateway has seen of it, in us; 0: never. If an operator has
--           accepted it since (fence.accept_database), it is not marked.
--
-- It does not wait for standbys, which follow the other database by now, nor long for a grant that waits for them.
create or replace function fence.supersede(p_by_system bigint, p_by_timeline integer, p_accepted bigint) returns void
language plpgsql
as $$
begin
    perform set_config('synchronous_commit', 'local', true), set_config('lock_timeout', '200', true);
    update fence.database_identity i
    set superseded_system = r.system_identifier, superseded_timeline = r.timeline,
        superseded_by_system = p_by_system, superseded_by_timeline = p_by_timeline, superseded_at = clock_timestamp()
    from fence.running_database() r
    where (i.superseded_system, i.superseded_timeline) is distinct from (r.system_identifier, r.timeline)
        and coalesce((extract(epoch from i.accepted_at) * 1000000)::bigint, 0) = p_accepted;
end
$$;
