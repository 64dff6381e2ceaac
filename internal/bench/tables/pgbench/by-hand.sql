\set account :client_id * :stride
\set row :account * 5
begin;
select token as last from fencegate_bench.tokens where resource = :prefix::text || '/' || :account::text for update \gset
\if :last > :token
rollback;
\else
\if :last < :token
update fencegate_bench.tokens set token = :token where resource = :prefix::text || '/' || :account::text;
\endif
update fencegate_bench.plain set balance = balance + 1 where id = :row;
commit;
\endif
