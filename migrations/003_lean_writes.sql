-- Fewer things to look at in every write.

drop function if exists fence.write(text[], bigint[], bigint[], uuid[], bytea[], text[], text[], bytea[], text[], bigint[]);
drop function if exists fence.admit(text[], bigint[], bigint[], uuid[], bytea[]);

-- A check of a table is parsed anew by every statement that updates it; that of a domain is not.
create domain fence.sequence_number as bigint constraint sequence_is_not_negative check (value >= 0);
alter table fence.fences
    drop constraint fences_last_sequence_check,
    alter column last_sequence type fence.sequence_number;

-- Whether a write made its record is known when the record is written, which is after its fence was raised.
alter table fence.records add column created boolean not null default false;
comment on column fence.records.created is 'whether the write that stored this value made the record';
update fence.records r set created = true
from fence.fences f
where f.resource = r.resource and f.last_version = r.version and f.last_created;
alter table fence.fences drop column last_created;
alter type fence.ruling drop attribute last_created;
