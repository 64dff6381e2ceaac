-- fence.may_use(name) → whether the role of the session may use the name by SQL: guard it, lease it, and write rows of
-- protected tables that belong to it. A role that may use a name may use all names below it.
--
-- A role with the right to call fence.all_names may use all names, others those of their entries (fence.is_allowed). It
-- is session_user that counts, not current_user, which is the schema's owner in the functions of applications.
--
-- The planner inlines the expression, so a guard of a role that may use all names reads no table for it.
create or replace function fence.may_use(p_name text) returns boolean
language sql stable
return has_function_privilege(session_user, 'fence.all_names'::regproc, 'execute') or fence.is_allowed(p_name);
