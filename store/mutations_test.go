package store_test

// stepMutations take each branch of the rule out.
var stepMutations = []mutation{
	{"without step 1", "admit", withoutStep(1, 1), []string{"step 1: no token", "steps 1 and 7: no token, a wrong version"}},
	{"without step 2", "admit", withoutStep(2, 1), []string{"step 2: one beyond the newest", "step 2: a token where nothing was granted"}},
	{"without step 3", "admit", withoutStep(3, 1), []string{"step 3: a replaced holder", "step 3: after release", "step 3: after break"}},
	{"without step 4, same_token", "admit", withoutStep(4, 1), []string{"same_token: a lower external token"}},
	{"without step 4", "admit", withoutStep(4, 2), []string{
		"step 4: a plain token twice", "step 4: a sequence in the gap", "external: the same token", "same_token: sequence 0 after a plain token",
	}},
	{"without step 5", "admit", withoutStep(5, 1), []string{"step 5: a lease_id of nobody", "step 5: no lease_id where one is demanded"}},
	{"without step 6", "admit", withoutStep(6, 1), []string{"step 6: an expired one", "steps 6 and 7: an expired lease, a wrong version"}},
	{"without step 7", "change", withoutStep(7, 1), []string{"step 7: one is there, none expected", "step 7: a lower version"}},
}

// ruleMutations break the rule within a step.
var ruleMutations = []mutation{
	{"step 2 is off by one", "admit", replacing("c.token > f.granted_token", "c.token > f.granted_token + 1"),
		[]string{"step 2: one beyond the newest"}},
	{"step 3 overlooks newer grants", "admit", replacing("(c.token < f.granted_token or not f.open)", "not f.open"),
		[]string{"step 3: a replaced holder", "step 3: one below the newest"}},
	{"step 3 overlooks that the fence is closed", "admit", replacing("(c.token < f.granted_token or not f.open)", "c.token < f.granted_token"),
		[]string{"step 3: after release", "step 3: after break", "step 3: after a late release"}},
	{"step 4 lets the last pair in again", "admit", replacing(pair+"\n                    then", pairBelow+"\n                    then"),
		[]string{"step 4: a plain token twice", "step 4: the last sequence with other content"}},
	{"step 4 overlooks the token", "admit", replacing(pair+"\n                    then", sequencesAlone+"\n                    then"),
		[]string{"step 4: a greater token with a lower sequence", "external: a lower token with a greater sequence"}},
	{"step 4 overlooks the sequence", "admit", replacing(pair+"\n                    then", tokensAlone+"\n                    then"),
		[]string{"step 4: the next sequence"}},
	{"step 4 shuts the same token out under same_token", "admit",
		replacing("c.sequence is null and c.token < f.last_token", "c.sequence is null and c.token <= f.last_token"),
		[]string{"same_token: a plain token twice", "same_token: an external token again"}},
	{"step 4 takes a numbered write for a plain one", "admit",
		replacing("p.same_token and c.sequence is null)", "p.same_token)"), []string{"same_token: sequence 0 after a plain token"}},
	{"step 5 looks only where the policy demands it", "admit", replacing("(c.lease_id is not null or p.require_lease_id)", "p.require_lease_id"),
		[]string{"step 5: a lease_id of nobody"}},
	{"step 5 looks only at what was sent", "admit", replacing("(c.lease_id is not null or p.require_lease_id)", "c.lease_id is not null"),
		[]string{"step 5: no lease_id where one is demanded"}},
	{"step 5 takes the lease_id of any lease of the lock", "admit",
		replacing("c.lease_id is distinct from (\n                            select l.lease_id from fence.leases l\n                            where l.lock = c.resource and l.fencing_token = c.token)",
			"not exists (select from fence.leases l where l.lock = c.resource and l.lease_id = c.lease_id)"),
		[]string{"step 5: the lease_id of the holder before"}},
	{"step 6 overlooks the clock", "admit", removing(" and l.expires_at > clock_timestamp()"), []string{"step 6: an expired one"}},
	{"step 6 always demands a live lease", "admit", removing("and p.require_live_lease"),
		[]string{"step 6: an expired one where none is demanded"}},
	{"step 2 holds for external tokens", "admit", replacing("not p.external and c.token > f", "c.token > f"),
		[]string{"external: a token that nobody granted here"}},
	{"step 3 holds for external tokens", "admit", replacing("not p.external and (c.token < f", "(c.token < f"),
		[]string{"external: a lower token than was granted before", "external: after the release of what was granted before"}},
	{"step 5 holds for external tokens", "admit", replacing("not p.external and (c.lease_id", "(c.lease_id"), []string{"external: any lease_id"}},

	{"no retry is known", "admit", replacing(retry, "false"), []string{"replay: the last write again", "set: a write and its retry"}},
	{"a retry is known by its number alone", "admit", removing(" and c.digest = stored.last_digest"),
		[]string{"no replay: another value", "no replay: another key", "no replay: another content type"}},
	{"a retry is known by its sequence alone", "admit", replacing("(c.token, c.sequence) = (f.last_token, f.last_sequence)", "c.sequence = f.last_sequence"),
		[]string{"no replay: another token"}},
	{"an unnumbered write is taken for a retry", "admit",
		replacing("(c.token, c.sequence) = (f.last_token, f.last_sequence)", "(c.token, coalesce(c.sequence, 0)) = (f.last_token, f.last_sequence)"),
		[]string{"no replay: unnumbered after numbered 0"}},
	{"the reason is released", "admit", removing("and (p.external or f.open)"), []string{"steps 3 and 4: released and reused"}},

	{"fences are not locked", "admit", replacing("order by f.resource for update", "order by f.resource"),
		[]string{"P3: a write in flight when the lock is granted"}},
	{"policies are looked for before the fence is locked", "admit",
		both(replacing("v_policies boolean;", "v_policies boolean := exists (select from fence.policies);"),
			removing("    v_policies := exists (select from fence.policies);\n")),
		[]string{"waiting: a policy is set"}},
	{"external tokens pass without a fence", "admit", removing("stored.resource is not null and "),
		[]string{"waiting: a resource comes under an authority elsewhere"}},
}

const (
	pair           = "(c.token, coalesce(c.sequence, 0)) <= (f.last_token, f.last_sequence)"
	pairBelow      = "(c.token, coalesce(c.sequence, 0)) < (f.last_token, f.last_sequence)"
	sequencesAlone = "coalesce(c.sequence, 0) <= f.last_sequence and f.last_token > 0"
	tokensAlone    = "c.token <= f.last_token"
	retry          = "coalesce((c.token, c.sequence) = (f.last_token, f.last_sequence) and c.digest = stored.last_digest, false)"
)

// changeMutations break what a write does once it was admitted.
var changeMutations = []mutation{
	{"what is refused raises the fence", "change",
		replacing("and (p_atomic and exists (select from passed) or c.place in (select p.claim from passed p))", ""),
		[]string{"step 7: what was refused did not use up its token", "step 7: one is there, none expected"}},
	{"a fence that is only claimed is not raised", "change",
		replacing("(p_atomic and exists (select from passed) or c.place in (select p.claim from passed p))", "c.place in (select p.claim from passed p)"),
		[]string{"transaction: a fence that is only claimed is raised, too"}},
	{"a transaction applies what passes", "change",
		removing("and not (p_atomic and exists (select from judged f where f.verdict is distinct from 'admitted'))"),
		[]string{"transaction: the second precondition fails", "transaction: a deletion of what is not there"}},
	{"a set applies all or nothing", "change", replacing("(p_atomic and exists (select from judged", "(exists (select from judged"),
		[]string{"set: many resources, the answers in the order of the writes"}},
	{"the sequence falls under same_token", "change", replacing("greatest(f.last_sequence, coalesce(p_sequences[c.place], 0))", "coalesce(p_sequences[c.place], 0)"),
		[]string{"same_token: the sequence stays shut out after that", "same_token: a plain token after a sequence"}},
	{"a newer token keeps the sequence", "change", replacing("case when f.last_token = p_tokens[c.place]", "case when true"),
		[]string{"step 4: a greater token with a lower sequence"}},
	{"the content of unnumbered writes is kept", "change",
		replacing("case when p_sequences[c.place] is not null then p_digests[c.place] end", "p_digests[c.place]"),
		[]string{"no replay: numbered 0 after unnumbered"}},
	{"versions stand still", "change", replacing("last_version = f.last_version + 1", "last_version = f.last_version"),
		[]string{"step 7: a lower version", "versions: greater than those of the deleted"}},
	{"versions begin anew with each record", "change", replacing("(p_rulings[o.claim]).last_version + 1 as next", "coalesce(r.version, 0) + 1 as next"),
		[]string{"versions: greater than those of the deleted"}},
	{"the deletion of nothing passes", "change", replacing("o.kind = 'delete' and r.version is null", "false"),
		[]string{"step 7: a deletion of what is not there"}},
	{"the first answer is forgotten", "change", replacing("last_created = c.place in", "last_created = false and c.place in"),
		[]string{"set: a write and its retry"}},
	{"a retry on one fence is one on all", "transact", replacing("bool_and(r.replayed)", "bool_or(r.replayed)"),
		[]string{"transaction: a replay on one of its fences only", "transaction: one of its claims is not numbered"}},
	{"a transaction overlooks its claims", "transact", replacing("of_claim := place is not null;", "of_claim := false;"),
		[]string{"transaction: the second token is stale", "transaction: a claim is refused before an operation"}},
	{"a set goes backwards", "write", replacing("partition by u.resource order by u.place", "partition by u.resource order by u.place desc"),
		[]string{"set: a later one does not go first", "set: two writes to one resource are judged in the order given"}},
}

// leaseMutations break leases.
var leaseMutations = []mutation{
	{"only the first grant raises the fence", "acquire",
		replacing("open = true where f.resource = p_lock;", "open = true where f.resource = p_lock and f.granted_token = 0;"),
		[]string{"P3: the grant raises the fence, not the first write", "P3: a write in flight when the lock is granted"}},
	{"an expired lease holds", "acquire", removing(" and lease.expires_at > v_now"),
		[]string{"P7: an expired lock is granted without a sweep", "P7: a lease that expires by itself is replaced"}},
	{"a live lease does not hold", "acquire", replacing("if found and lease.expires_at > v_now then", "if false then"),
		[]string{"P1: one holder", "P1: not even its owner again"}},
	{"the clock is read before the lease is locked", "acquire",
		both(replacing("v_now   timestamptz;", "v_now   timestamptz := clock_timestamp();"), removing("    v_now := clock_timestamp();\n")),
		[]string{"a lease begins after the one before it has ended"}},
	{"a grant does not open the fence again", "acquire",
		replacing("open = true where f.resource = p_lock;", "open = f.open or f.granted_token = 0 where f.resource = p_lock;"),
		[]string{"step 3: a holder after another's release"}},
	{"a request is anybody's", "acquire", replacing("lease.owner_id <> p_owner_id", "false"), []string{"request_id: of another owner"}},
	{"a request outlives its lease", "acquire", replacing("lease.ended_at is null and lease.expires_at > clock_timestamp()", "true"),
		[]string{"request_id: of a lease that was released", "request_id: of a lease that has expired"}},
	{"tokens come from the sequence alone", "mint", replacing("greatest(nextval('fence.tokens'), p_newest + 1)", "nextval('fence.tokens')"),
		[]string{"P2: a sequence that lags behind the fence", "P2: tokens start above those of an authority before"}},
	{"a grant overlooks what was written elsewhere", "acquire", replacing("greatest(v_fence.granted_token, v_fence.last_token)", "v_fence.granted_token"),
		[]string{"P2: tokens start above those of an authority before"}},

	{"a release leaves the fence open", "release", removing("update fence.fences f set open = false where f.resource = p_lock;"),
		[]string{"step 3: after release", "a late release closes the fence"}},
	{"a break leaves the fence open", "break", removing("update fence.fences f set open = false where f.resource = p_lock;"),
		[]string{"step 3: after break", "a break closes the fence of a late holder"}},
	{"a late lease can't be released", "release", replacing("('live', 'expired')", "('live')"), []string{"P6: the holder, expired", "a late release closes the fence"}},
	{"anybody may release", "release", replacing("if v_standing not in ('live', 'expired') then", "if false then"),
		[]string{"P6: another owner, live", "P6: the holder before, expired and replaced"}},
	{"anybody may renew", "renew", replacing("if standing <> 'live' then", "if false then"), []string{"P6: another owner, live", "P6: the holder, expired"}},

	{"the lease_id proves nothing", "lease_standing", replacing(identity, "v_lease.owner_id is distinct from p_owner_id"),
		[]string{"P6: another lease_id, live", "P6: no lease_id, live"}},
	{"the owner proves nothing", "lease_standing", replacing(identity, "v_lease.lease_id is distinct from p_lease_id"),
		[]string{"P6: another owner, live"}},
	{"null matches", "lease_standing", replacing(identity, "v_lease.lease_id <> p_lease_id or v_lease.owner_id <> p_owner_id"),
		[]string{"P6: nulls match nothing"}},
	{"an expired lease can be renewed", "lease_standing", removing(" or v_lease.expires_at <= clock_timestamp()"), []string{"P6: the holder, expired"}},
	{"a replaced lease is only expired", "lease_standing", removing("        when v_lease.fencing_token < v_fence.granted_token then 'superseded'\n"),
		[]string{"P6: the holder before, expired and replaced"}},
}

const identity = "(v_lease.lease_id, v_lease.owner_id) is distinct from (p_lease_id, p_owner_id)"
