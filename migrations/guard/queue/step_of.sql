-- fence.step_of(steps, step) → the index of the first of the steps with the owner of this step; null if there is none.
create or replace function fence.step_of(p_steps fence.wait_step[], p_step fence.wait_step) returns bigint
language sql immutable
as $$
    select min(s.ordinality)
    from unnest(p_steps) with ordinality s (principal, owner_id, lock, ticket, parent, ordinality)
    where (s.principal, s.owner_id) = (p_step.principal, p_step.owner_id)
$$;
