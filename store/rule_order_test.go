package store_test

import "github.com/fencegate/fencegate/store"

// orderCases are writes that fail two steps of the rule: the first of them is the answer.
var orderCases = []ruleCase{
	{"steps 1 and 5: no token, a wrong lease_id", given{acquire},
		with(none, otherLeaseID), store.VerdictTokenRequired, ""},
	{"steps 1 and 7: no token, a wrong version", given{acquire}, with(none, expect(7)), store.VerdictTokenRequired, ""},
	{"steps 2 and 5: unknown, a wrong lease_id", given{acquire},
		with(beyond, otherLeaseID), store.VerdictTokenUnknown, ""},
	{"steps 2 and 6: unknown, an expired lease", given{requireLiveLease, acquire, expire},
		with(beyond), store.VerdictTokenUnknown, ""},
	{"steps 2 and 7: unknown, a wrong version", given{acquire}, with(beyond, expect(7)), store.VerdictTokenUnknown, ""},
	{"steps 3 and 4: superseded and reused", given{acquire, wrote(with(newest)), replace},
		with(first), store.VerdictTokenStale, "superseded"},
	{"steps 3 and 4: released and reused", given{acquire, wrote(with(newest)), release},
		with(newest), store.VerdictTokenStale, "released"},
	{"steps 3 and 5: superseded, a wrong lease_id", given{acquire, replace},
		with(first, otherLeaseID), store.VerdictTokenStale, "superseded"},
	{"steps 3 and 6: released, an expired lease", given{requireLiveLease, acquire, expire, release},
		with(newest), store.VerdictTokenStale, "released"},
	{"steps 3 and 7: released, a wrong version", given{acquire, release},
		with(newest, expect(7)), store.VerdictTokenStale, "released"},
	{"steps 4 and 5: reused, a wrong lease_id", given{acquire, wrote(with(newest))},
		with(newest, otherLeaseID), store.VerdictTokenStale, "reused"},
	{"steps 4 and 6: reused, an expired lease", given{requireLiveLease, acquire, wrote(with(newest)), expire},
		with(newest), store.VerdictTokenStale, "reused"},
	{"steps 4 and 7: reused, a wrong version", given{acquire, wrote(with(newest))},
		with(newest, expect(7)), store.VerdictTokenStale, "reused"},
	{"steps 5 and 6: a wrong lease_id, an expired lease", given{requireLiveLease, acquire, expire},
		with(newest, otherLeaseID), store.VerdictLeaseMismatch, ""},
	{"steps 5 and 7: a wrong lease_id and version", given{acquire},
		with(newest, otherLeaseID, expect(7)), store.VerdictLeaseMismatch, ""},
	{"steps 6 and 7: an expired lease, a wrong version", given{requireLiveLease, acquire, expire},
		with(newest, expect(7)), store.VerdictLeaseExpired, ""},
}
