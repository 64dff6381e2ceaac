-- Renewals and keepalives tell how late they came.

drop function if exists fence.renew(text, text, uuid, bigint, integer);
drop function if exists fence.keep_alive(uuid);
