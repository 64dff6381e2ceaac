-- fence.fencegate_new has no columns. A trigger function of a protected table finds it where its trigger does not give it
-- the new rows (fence.trigger_functions).
create or replace view fence.fencegate_new as select;
