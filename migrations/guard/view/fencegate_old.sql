-- fence.fencegate_old has no columns. A trigger function of a protected table finds it where its trigger does not give it
-- the old rows (fence.trigger_functions).
create or replace view fence.fencegate_old as select;
