-- fence.admitted: the resources that the running transaction is admitted to write to (fence.guard). Each trigger of a
-- protected table reads it.
--
-- The proof is the fence itself, which only the functions of this schema change. Rolling back to a savepoint takes the
-- proof back with the row. A restored dump brings the numbers of another server's transactions, but then the row itself
-- is older than this transaction.
create or replace view fence.admitted as
    select f.resource, f.last_token, f.last_sequence
    from fence.fences f
    where f.admitted_in = pg_current_xact_id() and age(f.xmin) <= 0;
