-- fence.note_new_fence(principal) counts a fence that the principal makes. Every 256th, drawn by lot, leaves a row in
-- fence.fences_made. The row that completes 10,000,000 is marked full, and the principal may make no more
-- (fence.check_new_fence). Rows are only inserted, so transactions of one principal do not wait for each other.
create or replace function fence.note_new_fence(p_principal text) returns void
language plpgsql set enable_seqscan = off
as $$
declare
    c_fences_max constant integer := 10000000;
    c_sample     constant integer := 256;
begin
    if p_principal <> ''
        and get_byte(uuid_send(gen_random_uuid()), 0) % c_sample = 0 -- the caller could seed random()
    then
        insert into fence.fences_made (principal, "full")
        select p_principal, count(*) + 1 >= c_fences_max / c_sample from fence.fences_made m
        where m.principal = p_principal;
    end if;
end
$$;
