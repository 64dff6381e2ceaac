-- When a group among the rejections last changed, by the database's clock: what is read by those who follow them, and what they are
-- forgotten by. first_at and last_at are by the clocks of the gateways.
alter table fence.rejections add column changed_at timestamptz not null default clock_timestamp();
comment on column fence.rejections.changed_at is 'when it was last recorded, by the database''s clock';
update fence.rejections set changed_at = least(last_at, changed_at);
create index rejections_changed_at on fence.rejections (changed_at, id);
drop index fence.rejections_last_at;

-- It answers now what it has looked up.
drop function if exists fence.record_rejections(
    text[], text[], text[], text[], text[], text[], bigint[], bigint[], bigint[], bigint[], bigint[], bigint[], timestamptz[], timestamptz[]);
