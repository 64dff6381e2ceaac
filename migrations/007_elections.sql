-- Elections are found among the locks by the leases of campaigns, which keep the leader's value in their metadata. Only those are in the
-- index: other leases are granted at no cost.
create index leases_campaigns on fence.leases (lock, fencing_token) where metadata::text like '{"value":%';
