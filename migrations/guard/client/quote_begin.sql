-- fence.quote_begin(text) → a text in quotes for an error message: its first 100 characters, if it has more.
create or replace function fence.quote_begin(p_text text) returns text
language sql
as $$
    select quote_literal(left(p_text, 100) || case when length(p_text) > 100 then '…' else '' end)
$$;
