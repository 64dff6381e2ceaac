-- fence.all_names() does nothing. The right to call it is the right to use all names by SQL (fence.may_use).
create or replace function fence.all_names() returns void
language sql
as $$
$$;
