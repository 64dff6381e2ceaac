\set account :client_id * :stride
\set row :account * 5
\set sequence :sequence + 1
\startpipeline
begin;
select set_config('fencegate.token', :token::text || '.' || :sequence::text, true);
update fencegate_bench.protected set balance = balance + 1 where id = :row;
commit;
\endpipeline
