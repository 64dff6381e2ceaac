package checks

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/store"
)

// Node is a node of a cluster, or its coordinator.
type Node struct {
	Name    string // as the placement has it
	Address string
	Conn    *pgx.Conn // nil if it does not answer
	Failed  error     // why it does not
}

var (
	ofNodes = Check{
		Name: "cluster_node", Severity: Error,
		Advice: "Its names are unavailable, and those of other nodes are not. If its server is lost, promote its standby, and " +
			"give Citus its address (citus_update_node).",
		Sound: "all nodes answer",
	}
	ofRanges = Check{
		Name: "cluster_names", Severity: Error,
		Advice: "A node was restored alone, or lost a move that another one has. Restore all nodes at one point " +
			"(citus_create_restore_point).",
		Sound: "each name has one node",
	}
	ofMoves = Check{
		Name: "cluster_moves", Severity: Warning,
		Advice: "Gateways with --cluster move names within seconds, but for those that a transaction keeps locked: their logs " +
			"say what fails.",
		Sound: "each name is at the node where Citus has its rows",
	}
	ofPolicies = Check{
		Name: "cluster_policies", Severity: Error,
		Advice: "Setting a policy failed at a node. Set the policy again: it is set at all nodes.",
		Sound:  "all nodes have the policies of the coordinator",
	}
)

// hashes are those of the names from first to last, at a node. arrived says that they have moved to another.
type hashes struct {
	first, last int64
	node        string
	arrived     bool
}

// Cluster returns what is to be found of the nodes of a cluster: what the checks find at each of them, whose subjects then
// begin with its address, and whether the nodes have the names and the policies that they should. It leaves out the
// checks of protected tables, which the coordinator alone knows. It returns errors of the databases.
func Cluster(ctx context.Context, coordinator Node, nodes []Node, ofEach []Check) ([]Finding, error) {
	var findings []Finding
	answering, away := []Node{coordinator}, 0
	ofEach = slices.DeleteFunc(slices.Clone(ofEach), func(c Check) bool {
		return slices.ContainsFunc(ofTables, func(table Check) bool { return c.Name == table.Name })
	})
	for _, node := range nodes {
		switch {
		case node.Conn == nil:
			findings = append(findings, ofNodes.finding(node.Address, node.Failed.Error()))
			away++
			continue
		case node.Name == store.CoordinatorNode:
			answering[0].Name = node.Name // it has names, too
			continue
		}
		answering = append(answering, node)
		found, err := Run(ctx, node.Conn, ofEach)
		if err != nil {
			return nil, fmt.Errorf("node %s: %w", node.Address, err)
		}
		for _, finding := range found {
			if finding.Subject != "" {
				finding.Subject = node.Address + " " + finding.Subject
				findings = append(findings, finding)
			}
		}
	}
	if away == 0 {
		findings = append(findings, ofNodes.finding("", ""))
		ofNames, err := namesOf(ctx, coordinator, answering)
		if err != nil {
			return nil, err
		}
		findings = append(findings, ofNames...)
	}
	different, err := differentPolicies(ctx, answering)
	return append(findings, different...), err
}

// namesOf returns whether each name has one node, and is where it should be.
func namesOf(ctx context.Context, coordinator Node, nodes []Node) (found []Finding, err error) {
	var have []hashes
	var problem string
	for attempt := 0; attempt < 2 && (attempt == 0 || problem != ""); attempt++ { // a range may come between two queries
		have = nil
		for _, node := range nodes {
			rows, _ := node.Conn.Query(ctx, "select first, last, sent from fence.ranges")
			all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (h hashes, err error) {
				h.node = node.Name
				return h, row.Scan(&h.first, &h.last, &h.arrived)
			})
			if err != nil {
				return nil, err
			}
			have = append(have, all...)
		}
		problem = notCovered(have)
	}
	if problem == "" {
		found = append(found, ofRanges.finding("", ""))
	} else {
		found = append(found, ofRanges.finding("fence.ranges", problem))
	}
	rows, _ := coordinator.Conn.Query(ctx, "select first, last, node from fencegate.placements()")
	want, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (h hashes, err error) {
		return h, row.Scan(&h.first, &h.last, &h.node)
	})
	if err != nil {
		return nil, err
	}
	moving := int64(0)
	for _, h := range have {
		for _, w := range want {
			if h.node != w.node && !h.arrived {
				moving += max(0, min(h.last, w.last)-max(h.first, w.first)+1)
			}
		}
	}
	if moving == 0 {
		return append(found, ofMoves.finding("", "")), nil
	}
	return append(found, ofMoves.finding("fence.ranges", fmt.Sprintf("%.1f %% of the hashes of names are still to move",
		100*float64(moving)/(1<<32)))), nil
}

// notCovered returns which hashes have no node, or two; "" if each has one. Those that have moved are at the other node.
func notCovered(have []hashes) string {
	slices.SortFunc(have, func(a, b hashes) int { return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(a.last, b.last)) })
	next, before := int64(-1<<31), hashes{}
	for _, h := range have {
		switch {
		case h.arrived:
			continue
		case h.first > next:
			return fmt.Sprintf("names with the hashes %d to %d have no node", next, h.first-1)
		case h.first < next:
			return fmt.Sprintf("names with the hashes %d to %d are at node %s and at node %s", h.first, min(h.last, next-1),
				before.node, h.node)
		}
		next, before = h.last+1, h
	}
	if next <= 1<<31-1 {
		return fmt.Sprintf("names with the hashes %d to %d have no node", next, int64(1<<31-1))
	}
	return ""
}

// differentPolicies returns the nodes that have other policies than the coordinator, which is the first.
func differentPolicies(ctx context.Context, nodes []Node) (found []Finding, err error) {
	const sql = `select coalesce(string_agg(concat_ws('|', prefix, rule, authority, require_lease_id, require_live_lease,
		require_principal_owner, coalesce(max_hold_ms, 0)), ',' order by prefix), '') from fence.policies`
	var wanted string
	for i, node := range nodes {
		var policies string
		if err := node.Conn.QueryRow(ctx, sql).Scan(&policies); err != nil {
			return nil, err
		}
		if i == 0 {
			wanted = policies
		} else if policies != wanted {
			found = append(found, ofPolicies.finding(node.Address, "its policies are not those of the coordinator"))
		}
	}
	if found == nil {
		found = append(found, ofPolicies.finding("", ""))
	}
	return found, nil
}
