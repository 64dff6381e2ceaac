package migrations_test

// replacedScripts are about protected tables in whose place another one is written: its child, its parent, or a table that
// has taken its name. They are as protectScripts.
var replacedScripts = []script{
	{"a protected table that gets children, or becomes a partition", `
		A create table alone_2 (id integer); select fence.protect('alone_2', 'alone/{id}');
			create table heir () inherits (alone_2);
			select problem from fence.protected where table_name = 'alone_2'
			-- public.alone_2 inherits or is inherited from, so statements on the other table would not be checked: alter table public.heir no inherit public.alone_2; select fence.protect('public.alone_2', 'alone/{id}', 'enforce', 'guarded')
		A select fence.protect('alone_2', 'alone/{id}', 'observe'); select fence.protect('alone_2', 'alone/{id}');
			select test.cure('alone/{id}')  -- $cure
		A $cure; select problem is null from fence.protected where template = 'alone/{id}'  -- t
		A create table legacy (id integer, n integer); create table joined (id integer, n integer);
			insert into joined values (1, 1); select fence.protect('joined', 'joined/{id}');
			alter table joined inherit legacy  -- !0A000 "fencegate_unprotect_first" prevents table "joined"
		A create table joining (id integer, n integer) partition by list (id);
			alter table joining attach partition joined default  -- !0A000 "fencegate_unprotect_first" prevents
		A alter table joined disable trigger user; alter table joining attach partition joined default  -- !0A000
		A select fence.protect('joined', 'joined/{id}', inserts => 'free'); drop trigger fencegate_unprotect_first on joined;
			select problem from fence.protected where template = 'joined/{id}'
			-- trigger fencegate_unprotect_first on public.joined is missing
		A alter table joined inherit legacy; select fence.protect('joined', 'joined/{id}', 'observe');
			select fence.protect('joined', 'joined/{id}'); update joined set n = 2  -- !LF101 joined/1
		A select test.cure('joined/{id}')  -- $cure
		A $cure; select problem is null from fence.protected where template = 'joined/{id}'  -- t
		A drop trigger fencegate_unprotect_first on joined; alter table joined inherit legacy; select fence.unprotect('joined');
			alter table joined no inherit legacy; select fence.protect('joined', 'joined/{id}', inserts => 'free');
			drop trigger fencegate_unprotect_first on joined; alter table joining attach partition joined default;
			select problem from fence.protected where template = 'joined/{id}'
			-- public.joined is a partition of public.joining, which must be protected instead: select fence.protect('public.joining', 'joined/{id}', 'enforce', 'free'); select fence.unprotect('public.joined')
		A select fence.protect('joined', 'joined/{id}', 'observe'); update joined set n = 3;
			select fence.protect('joined', 'joined/{id}'); update joined set n = 4  -- !LF101 joined/1
		A select test.cure('joined/{id}')  -- $cure
		A $cure; update joining set n = 4  -- !LF101 joined/1
		A truncate joined  -- !LF107
		A select problem is null, inserts from fence.protected where template = 'joined/{id}'  -- t|free
		A select fence.unprotect('joining'); truncate joined; insert into joined values (1, 1);
			alter table joining detach partition joined; select fence.protect('joined', 'joined/{id}');
			drop trigger fencegate_unprotect_first on joined; alter table joining attach partition joined default;
			select fence.protect('joining', 'joining/{id}'); select fence.unprotect('joining');
			update joined set n = 4  -- !LF101 joined/1
		A truncate joined  -- !55000
		A select fence.protect('joining', 'joining/{id}'); select test.cure('joined/{id}')
			-- select fence.unprotect('public.joined')
		A select fence.unprotect('joined'); truncate joined  -- !LF107
		A update joined set n = 4  -- !LF101 joining/1
		A select problem is null from fence.protected where template = 'joining/{id}'  -- t`},
	{"the name of a protected table that another table has", `
		A create table swapped (id integer primary key, n integer); insert into swapped values (1, 1);
			select fence.protect('swapped', 'swapped/{id}', inserts => 'free'); create table incoming (like swapped including all);
			insert into incoming table swapped
		A begin; alter table swapped rename to retired;
			select problem is null from fence.protected where template = 'swapped/{id}'  -- t
		A alter table incoming rename to swapped; commit;
			select problem from fence.protected where template = 'swapped/{id}'
			-- public.swapped is another table now, which is not protected: select fence.protect('public.swapped', 'swapped/{id}', 'enforce', 'free'); select fence.unprotect('public.retired')
		A select fence.protect('retired', 'swapped/{id}', 'observe'); select fence.protect('retired', 'swapped/{id}');
			update retired set n = 2  -- !LF101 swapped/1
		A select test.cure('swapped/{id}')  -- $cure
		A $cure; update swapped set n = 2  -- !LF101 swapped/1
		A update retired set n = 2; select count(*), count(problem) from fence.protected where template = 'swapped/{id}'  -- 1|0
		A create table incoming (like swapped including all); select fence.protect('incoming', 'swapped/{id}');
			alter table swapped rename to retired_2; alter table incoming rename to swapped;
			select count(*), count(problem) from fence.protected where template = 'swapped/{id}'  -- 2|0
		A select fence.unprotect('retired_2'); select fence.unprotect('swapped'); create schema "Ar.chive";
			create schema "Ne""w"; create table "Ne""w"."Or.ders" (id integer);
			create table "Ar.chive"."Or.ders" (id integer); select fence.protect('"Ar.chive"."Or.ders"', 'Or/{id}', 'observe');
			alter schema "Ar.chive" rename to older;
			select problem is null from fence.protected where template = 'Or/{id}'  -- t
		A alter schema "Ne""w" rename to "Ar.chive"; select problem from fence.protected where template = 'Or/{id}'
			-- "Ar.chive"."Or.ders" is another table now, which is not protected: select fence.protect('"Ar.chive"."Or.ders"', 'Or/{id}', 'observe', 'guarded'); select fence.unprotect('older."Or.ders"')
		A select fence.unprotect('older."Or.ders"'); select fence.protect('older."Or.ders"', 'Or/{id}');
			select problem is null from fence.protected where template = 'Or/{id}'  -- t
		A create table recreated (id integer); select fence.protect('recreated', 'recreated/{id}');
			select 'recreated'::regclass::oid  -- $oid
		A drop table recreated; create table restored (id integer); alter table restored rename to recreated;
			select problem from fence.protected where template = 'recreated/{id}'
			-- public.recreated is another table now, which is not protected: select fence.protect('public.recreated', 'recreated/{id}', 'enforce', 'guarded'); select fence.unprotect('$oid')
		A select fence.protect($oid::regclass, 'recreated/{id}', 'observe')  -- !42809 there is no such table
		A select test.cure('recreated/{id}')  -- $cure
		A $cure; insert into recreated values (1)  -- !LF101 recreated/1
		A select count(*), count(problem) from fence.protected where template = 'recreated/{id}'  -- 1|0
		A alter table recreated rename to recreated_2; create table recreated (id integer) partition by list (id);
			create table leaf partition of recreated default; alter table recreated rename to trunk;
			alter table leaf rename to recreated; select test.cure('recreated/{id}')
			-- select fence.protect('public.trunk', 'recreated/{id}', 'enforce', 'guarded'); select fence.unprotect('public.recreated_2')
		A select fence.protect('public.trunk', 'recreated/{id}'); insert into recreated values (1)  -- !LF101 recreated/1
		A select count(*), count(problem) from fence.protected where template = 'recreated/{id}'  -- 2|0
		A create table viewed (id integer); select fence.protect('viewed', 'viewed/{id}');
			alter table viewed rename to viewed_2; create view viewed as select * from viewed_2;
			select problem is null from fence.protected where template = 'viewed/{id}'  -- t
		A create table looked_at (id integer); create or replace view viewed as select * from looked_at;
			select problem from fence.protected where template = 'viewed/{id}'
			-- public.viewed is another table now, which is not protected: select fence.unprotect('public.viewed_2')`},
}
