-- fence.segment(text) → the segment of a resource's name that stands for a value of a column. For applications, too, to
-- compute a resource as the triggers of a protected table do.
--
-- Most values stand for themselves. null is %null, the empty text %empty, . and .. are %2E and %2E%2E; in any other
-- value, each % is %25, each / is %2F, and each control character is the percent-encoding of its UTF-8 bytes. Different
-- values have different segments. The planner inlines it.
create or replace function fence.segment(p_value text) returns text
language sql immutable
return case when p_value !~ ('[%/' || chr(1) || '-' || chr(31) || chr(127) || '-' || chr(159) || ']|^[.]{0,2}$') then p_value
        else fence.escape_segment(p_value) end;
