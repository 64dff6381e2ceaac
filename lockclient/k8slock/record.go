package k8slock

import (
	"encoding/json"
	"math"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/fencegate/fencegate/gateway/api"
)

// termMetadata is the metadata of a term's lease. Its one field, value, makes the lock an election.
func termMetadata(ttl time.Duration) any {
	return map[string]leaderValue{"value": {LeaseDurationSeconds: int(ttl / time.Second)}}
}

// leaderValue is what others read of the leader.
type leaderValue struct {
	LeaseDurationSeconds int `json:"lease_duration_seconds"`
}

// recordOf returns the record of an election, and bytes that differ after each change: also after a renewal within the
// same second, which the record does not show.
func recordOf(election api.Election) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record := resourcelock.LeaderElectionRecord{
		HolderIdentity:    election.Leader,
		LeaderTransitions: int(min(election.Term, math.MaxInt)),
	}
	if election.Leader != "" {
		var value leaderValue
		_ = json.Unmarshal(election.Value, &value) // another client's value has no duration
		record.LeaseDurationSeconds = value.LeaseDurationSeconds
		duration := time.Duration(value.LeaseDurationSeconds) * time.Second
		record.AcquireTime = metav1.NewTime(election.Since.Time)
		record.RenewTime = metav1.NewTime(election.ExpiresAt.Add(-duration))
	}
	election.Candidates = nil // they come and go without a change of the leader
	raw, err := json.Marshal(election)
	return &record, raw, err
}
