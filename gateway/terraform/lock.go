package terraform

import (
	"cmp"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/fencegate/fencegate/store"
)

// LockInfo describes a lock, in the words of Terraform.
type LockInfo struct {
	ID        string
	Operation string
	Info      string
	Who       string
	Version   string // of Terraform
	Created   time.Time
	Path      string
}

// ParseLockInfo reads the body of a LOCK or UNLOCK. It returns store.ErrInvalid.
func ParseLockInfo(body []byte) (LockInfo, error) {
	var info LockInfo
	if err := json.Unmarshal(body, &info); err != nil {
		return info, fmt.Errorf("%w: the body does not describe a lock as Terraform does: %w", store.ErrInvalid, err)
	}
	if info.ID == "" {
		return info, fmt.Errorf("%w: the body has no ID of a lock", store.ErrInvalid)
	}
	return info, nil
}

// Request asks for the lease of the lock. A policy may demand that the owner begins with the principal.
func (i LockInfo) Request(state store.Name, principal string, ttl time.Duration) (store.AcquireRequest, error) {
	owner := cmp.Or(i.Who, "terraform")
	if principal != "" {
		owner = principal + "/" + owner
	}
	metadata, err := json.Marshal(i)
	return store.AcquireRequest{
		Lock: state, OwnerID: owner, TTL: ttl, RequestID: i.ID, Metadata: metadata,
	}, err
}

// HolderInfo describes what is in the way of a lock: lock as it was read after held was returned. It has an ID:
// Terraform does not wait for a lock without one.
func HolderInfo(lock store.Lock, held *store.HeldError) LockInfo {
	lease := lock.Holder()
	if lease == nil || held.By != "" && held.By != held.Lock {
		return LockInfo{ID: "unknown", Who: held.OwnerID, Info: held.Error()}
	}
	var info LockInfo
	if json.Unmarshal(lease.Metadata, &info) != nil || info.ID == "" {
		info = LockInfo{ID: "unknown", Operation: "not Terraform's", Who: lease.OwnerID, Created: lease.GrantedAt}
	}
	if info.Info == "" {
		info.Info = fmt.Sprintf("fencing token %d, not renewed, expires at %s",
			lease.Token, lease.ExpiresAt.UTC().Format(time.RFC3339))
	}
	return info
}
