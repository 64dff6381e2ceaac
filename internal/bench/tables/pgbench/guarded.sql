\set account :client_id * :stride
\set row :account * 5
\set sequence :sequence + 1
\startpipeline
begin;
select fence.guard(:prefix::text || '/' || :account::text, :token, :sequence);
update fencegate_bench.plain set balance = balance + 1 where id = :row;
commit;
\endpipeline
