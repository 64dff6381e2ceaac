package migrations_test

// rowsScripts are about transactions that write rows of open tables.
var rowsScripts = []script{
	{"rows of open tables: what is written, and what is not", `
		A ` + changeSQL + `
		A create table docs (id text primary key, title text, n integer, gone integer); alter table docs drop gone;
			select fence.protect('docs', 'docs/{id}'); select fence.open_table('docs');
			insert into fence.fences (resource) values ('untouched');
			select test.acquire('docs/1', 'A')  -- $a
		A select test.acquire('docs/2', 'B')  -- $b
		A select test.change('{docs/1 $a 1}', '{"kind":"insert","row":{"title":"x","id":"1","n":1},"returning":["title","id"]}')
			-- admitted {1} [{"id":"1","title":"x"}]
		A select test.change('{docs/1 $a 1}', '{"kind":"insert","row":{"title":"x","id":"1","n":1},"returning":["title","id"]}')
			-- admitted replayed
		A select test.change('{docs/1 $a 1}', '{"kind":"delete"}')  -- token_stale reused
		A select test.change('{docs/1 $a 2}', '{"kind":"update","row":{"title":"y","n":null},"where":{"id":"1","n":1},"count":1}')
			-- admitted {1}
		A select test.change('{docs/1 $a 3}', '{"kind":"update","row":{"n":7},"where":{"n":null},"count":1}')  -- admitted {1}
		A select test.change('{docs/1 $a 4}', '{"kind":"delete","where":{"n":8},"count":1}')  -- failed 1 LF202
		A select test.change('{docs/2 $b 1}', '{"kind":"upsert","row":[{"id":"2","title":"y"}],"conflict":["id"]}')
			-- admitted {1}
		A select test.change('{docs/1 $a 4}', '{"kind":"upsert","row":{"id":"1","title":"y","n":9},"conflict":["id"]}')
			-- admitted {1}
		A select n from docs where id = '1'  -- 9
		A select test.change('{docs/1 $a 5}', '{"kind":"update","row":{"n":10},"where":{"title":"y"}}')  -- admitted {1}
		A select string_agg(concat_ws(' ', id, title, n), ', ' order by id) from docs  -- 1 y 10, 2 y
		A select test.change('{docs/1 $a 6}', '{"kind":"insert","row":{"ctid":"1"}}')  -- failed 1 22023
		A select test.change('{docs/1 $a 6}', '{"kind":"insert","row":{"relname":"1"}}')  -- failed 1 22023
		A select test.change('{docs/2 $b 2}', '{"kind":"insert","row":{"id":"2"}}')  -- failed 1 23505 public.docs
		A select test.change('{docs/1 $a 6}', '{"kind":"insert","row":{"........pg.dropped.4........":"1"}}')  -- failed 1 22023
		A select test.change('{docs/1 $a 6,docs/2 $b 2}', '{"kind":"update","row":{"n":11}}',
			'{"kind":"update","row":{"n":2},"token":2}', '{"kind":"update","row":{"n":12}}')  -- admitted {1,1,1}
		A select test.change('{docs/1 $a 7,docs/2 $b 3}', '{"kind":"update","row":{"n":3},"token":2}',
			'{"kind":"upsert","row":{"id":"2","n":13},"conflict":["id"]}')  -- failed 2 LF101
		A select string_agg(concat_ws(' ', id, title, n), ', ' order by id) from docs  -- 1 y 12, 2 y 2
		A select admitted_in is null from fence.fences where resource = 'untouched'  -- t`},
	{"rows of open tables: types, errors of the table, and as many rows as a transaction may change", `
		A ` + changeSQL + `
		A create type mood as enum ('ok'); create domain code as text;
			create table docs (id text primary key, mood mood, moods mood[], code code); create table lines (doc text, n integer);
			create function again() returns trigger language plpgsql as
				'begin raise exception ''again'' using errcode = ''40001''; end';
			create trigger again before insert on docs for each row when (new.code = 'again') execute function again();
			select fence.protect('docs', 'docs/{id}'), fence.protect('lines', 'lines/{doc}'), fence.open_table('docs'),
				fence.open_table('lines')
		A select test.acquire('docs/1', 'A')  -- $a
		A select test.acquire('lines/1', 'B')  -- $b
		A select test.change('{docs/1 $a 1}', '{"kind":"insert","row":{"id":"1","mood":"ok","moods":["ok"],"code":"c"}}',
			'{"kind":"delete","where":{"mood":"ok","moods":["ok"],"code":"c"}}')  -- admitted {1,1}
		A select test.change('{docs/1 $a 2}', '{"kind":"insert","row":{"id":"1","code":"again"}}')  -- !40001 again
		A select test.change('{docs/1 $a 2,lines/1 $b 1}', test.lines(10000), '{"kind":"delete"}')  -- admitted {10000,0}
		A select test.change('{lines/1 $b 2}', test.lines(10001))  -- failed 1 LF203`},
	{"rows of tables that are not open", `
		A ` + changeSQL + `
		A create table docs (id text primary key); create table other (id text primary key);
			select fence.protect('docs', 'docs/{id}'); select fence.protect('other', 'other/{id}', 'observe');
			select test.acquire('docs/1', 'A')  -- $a
		A select test.change('{docs/1 $a 1}', '{"kind":"delete"}')  -- failed 1 LF201
		A select fence.open_table('docs'), fence.open_table('other')
		A select test.change('{docs/1 $a 1}', '{"kind":"delete"}', '{"kind":"delete","table":"public.other"}')  -- failed 2 LF201
		A select test.change('{docs/1 $a 1}', '{"kind":"delete","table":"public.none"}')  -- failed 1 LF201
		A alter table docs enable trigger fencegate_update
		A select test.change('{docs/1 $a 1}', '{"kind":"delete"}')  -- failed 1 LF201
		A alter table docs enable always trigger fencegate_update
		A select test.change('{docs/1 $a 1}', '{"kind":"delete"}')  -- admitted {0}
		A select fence.close_table('docs'), fence.close_table('docs')
		A select test.change('{docs/1 $a 2}', '{"kind":"delete"}')  -- failed 1 LF201
		A select http from fence.protected_tables where table_id = 'other'::regclass  -- t
		A select string_agg(action, ' ' order by id) from fence.audit where action in ('table_opened', 'table_closed')
			-- table_opened table_opened table_closed`},
}

// changeSQL makes test.change(tokens, operations…), which writes rows of tables under "resource token sequence" each.
const changeSQL = `create or replace function test.change(p_tokens text[], variadic p_operations text[]) returns text
	language sql as $$
		select concat_ws(' ', t.verdict, nullif(t.reason, ''), case when t.replayed then 'replayed' end,
			case when t.failure is null then t.row_counts::text else t.index::text end, t.returned[1], t.failure[1],
			nullif(t.failure[6], ''))
		from (
			select array_agg(split_part(u, ' ', 1)) as resources, array_agg(split_part(u, ' ', 2)::bigint) as numbers,
				array_agg(split_part(u, ' ', 3)::bigint) as sequences, array_agg(null::uuid) as ids
			from unnest(p_tokens) u) w,
		(
			select array_agg(coalesce((o ->> 'token')::integer, 1) order by n) as tokens, array_agg(o ->> 'kind' order by n) as kinds,
				array_agg(coalesce(o ->> 'table', 'public.docs') order by n) as tables,
				array_agg(coalesce((o -> 'row')::text, '{}') order by n) as rows, array_agg(coalesce((o -> 'where')::text, '{}') order by n) as wheres,
				array_agg(coalesce((o -> 'conflict')::text, '[]') order by n) as conflicts,
				array_agg(coalesce((o -> 'returning')::text, '[]') order by n) as returnings,
				array_agg((o ->> 'count')::bigint order by n) as counts
			from unnest(p_operations::json[]) with ordinality as u (o, n)) c,
		fence.transact_tables(w.resources, w.numbers, w.sequences, w.ids, sha256(convert_to(p_operations::text, 'UTF8')),
			'{}', '{}', '{}', '{}', '{}', '{}',
			c.tokens, c.kinds, c.tables, c.rows, c.wheres, c.conflicts, c.returnings, c.counts) t
	$$;
	create or replace function test.lines(p_count integer) returns text language sql as $$
		select json_build_object('kind', 'insert', 'table', 'public.lines', 'token', case when p_count = 10000 then 2 else 1 end,
			'row', (select json_agg(json_build_object('doc', '1', 'n', n)) from generate_series(1, p_count) n))::text $$`
