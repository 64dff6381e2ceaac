\set account :client_id * :stride
\set row :account * 5
update fencegate_bench.plain set balance = balance + 1 where id = :row;
