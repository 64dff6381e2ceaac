-- fence.held: the leases that run, as of fence.live_leases, on names that the role may use. table_name is the table of a
-- row that was claimed (fence.is_claim). It names no function whose body is parsed with the search_path of the reader. A
-- security barrier, as fence.protected is.
create or replace view fence.held with (security_barrier) as
    select l.lock::text as lock, l.owner_id, l.principal, l.mode, l.scope, l.fencing_token::bigint as fencing_token,
        case when substr(l.lease_id::text, 15, 2) = '83' then l.metadata ->> 'table' end as table_name, l.granted_at,
        fence.lease_until(l, s) as expires_at
    from fence.leases l
    left join fence.sessions s on s.session_id = l.session_id
    where l.ended_at is null and fence.lease_until(l, s) > clock_timestamp() and fence.may_use(l.lock);
