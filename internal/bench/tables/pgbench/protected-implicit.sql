\set account :client_id * :stride
\set row :account * 5
\set sequence :sequence + 1
\startpipeline
select fence.guard(:prefix::text || '/' || :account::text, :token, :sequence);
update fencegate_bench.protected set balance = balance + 1 where id = :row;
\endpipeline
