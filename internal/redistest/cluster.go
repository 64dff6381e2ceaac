package redistest

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/internal/await"
	"github.com/fencegate/fencegate/internal/freeport"
)

// slots is the number of slots of every Cluster.
const slots = 16384

// StartCluster runs the masters of a Cluster. Each has an equal part of the slots.
func StartCluster(t testing.TB, masters int) []*Server {
	t.Helper()
	nodes := make([]*Server, masters)
	for i := range nodes {
		_, bus, _ := net.SplitHostPort(freeport.Address(t))
		nodes[i] = Start(t, "cluster-enabled yes", "cluster-port "+bus)
		nodes[i].Do("CLUSTER", "SET-CONFIG-EPOCH", fmt.Sprint(i+1))
		nodes[i].Do("CLUSTER", "ADDSLOTSRANGE", fmt.Sprint(i*slots/masters), fmt.Sprint((i+1)*slots/masters-1))
		nodes[0].Do("CLUSTER", "MEET", nodes[i].Host, nodes[i].Port, bus)
	}
	for _, node := range nodes {
		await.True(t, "the node knows the cluster", func() bool {
			info := node.Do("CLUSTER", "INFO")
			return strings.Contains(info, "cluster_state:ok") &&
				strings.Contains(info, fmt.Sprintf("cluster_slots_assigned:%d\r\n", slots)) &&
				strings.Contains(info, fmt.Sprintf("cluster_size:%d\r\n", masters))
		})
	}
	return nodes
}
