-- fence.policies_digest() → a number that changes with every change of a policy; 0 if there is none.
create or replace function fence.policies_digest() returns bigint
language sql volatile
as $$
    select coalesce(bit_xor(hashtextextended(p.prefix, (extract(epoch from p.updated_at) * 1000000)::bigint)), 0)
    from fence.policies p
$$;
