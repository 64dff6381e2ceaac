package migrations_test

import "strings"

// nestedScripts are about transactions with the token of a lease that has expired, while a subtree lease is granted above
// or below. The transaction's resource is in the subtree.
var nestedScripts = []script{
	{"a grant of a subtree below waits for a transaction with the older token, which goes on", `
		A select test.grant('goes-on', 'exclusive', 'subtree')  -- $t
		A begin; select fence.guard('goes-on/x', $t, 1)  -- t
		B select test.grant('goes-on/n', 'exclusive', 'subtree')  -- waits
		A select fence.guard('goes-on/n', $t, 1)  -- t
		A commit
		B ...`},
	{"a grant of a subtree above waits for a transaction with the older token, which goes on", `
		A select test.grant('goes-on-above/n', 'exclusive', 'subtree')  -- $t
		A begin; select fence.guard('goes-on-above/n/x', $t, 1)  -- t
		B select test.grant('goes-on-above', 'exclusive', 'subtree')  -- waits
		A select fence.guard('goes-on-above/n', $t, 1)  -- t
		A commit
		B ...`},
	{"a grant of a subtree closes the fence of a late holder below", `
		A select test.grant('closes/x')  -- $t
		A select test.grant('closes', 'exclusive', 'subtree')  -- $new
		A select fence.guard('closes/x', $t, 1)  -- !LF103 "granted_token":$new`},
	olderSnapshot("repeatable read", "below", "nest/m", "nest/m/n"),
	olderSnapshot("serializable", "below", "nest-s/m", "nest-s/m/n"),
	olderSnapshot("repeatable read", "above", "nested/m/n", "nested/m"),
	olderSnapshot("serializable", "above", "nested-s/m/n", "nested-s/m"),
}

// olderSnapshot is about a snapshot that was taken before the newer grant. The resource has a fence already.
func olderSnapshot(level, direction, older, newer string) script {
	return script{level + ": a grant of a subtree " + direction + " since the snapshot is 40001",
		strings.NewReplacer("LEVEL", level, "OLDER", older, "NEWER", newer).Replace(`
		A select test.grant('OLDER', 'exclusive', 'subtree')  -- $t
		A select fence.guard('OLDER/n/x', $t, 1)  -- t
		A begin isolation level LEVEL; select 1
		B select test.grant('NEWER', 'exclusive', 'subtree')  -- $new
		A select fence.guard('OLDER/n/x', $t, 2)  -- !40001
		A rollback; select fence.guard('OLDER/n/x', $t, 2)  -- !LF103 "granted_token":$new`)}
}
