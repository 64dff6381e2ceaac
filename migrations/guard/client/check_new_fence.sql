-- fence.check_new_fence(lock): the role of the connection may make the fence of the lock, or it exists already. A fence
-- stays for ever once it was granted, so a role that acquires ever new names would fill the disk: it may make about
-- 1,000,000.
--
-- Every 64th new name, drawn by lot, leaves a row in fence.fences_made. The row that completes the number is marked
-- full, and the role has no more. Rows are only inserted, so transactions of one role do not wait for each other.
--
-- Raises LF007 beyond the bound. docs/security.md says how an operator allows more.
create or replace function fence.check_new_fence(p_lock text) returns void
language plpgsql set enable_seqscan = off
as $$
declare
    c_fences_max constant integer := 1000000;
    c_sample     constant integer := 64;
begin
    if exists (select from fence.fences f where f.resource = p_lock) then
        return;
    end if;
    if exists (select from fence.fences_made m where m.role = session_user and m."full") then
        raise exception 'role % has made about % fences by SQL, as many as it may: acquire names that were used before',
            session_user, c_fences_max using errcode = 'LF007';
    end if;
    if get_byte(uuid_send(gen_random_uuid()), 0) % c_sample = 0 then -- the caller could seed random()
        insert into fence.fences_made (role, "full")
        select session_user, count(*) + 1 >= c_fences_max / c_sample from fence.fences_made m where m.role = session_user;
    end if;
end
$$;
