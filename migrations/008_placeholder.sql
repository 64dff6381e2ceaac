-- Numbers must be consecutive: the migration of the sweep takes this place.
select 1;
