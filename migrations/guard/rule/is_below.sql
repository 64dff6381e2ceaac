-- fence.is_below(name, ancestor) → whether the name is in the subtree of the ancestor, and not the ancestor itself.
--
-- '0' is the character after '/'. The planner inlines the expression, so an index on the name finds the range.
create or replace function fence.is_below(p_name text, p_ancestor text) returns boolean
language sql immutable parallel safe
as $$
    select p_name collate "C" > p_ancestor || '/' and p_name collate "C" < p_ancestor || '0'
$$;
