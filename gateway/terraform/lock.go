package terraform

import (
	"cmp"
	"context"
	"fmt"
	"slices"
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

// Versions returns the versions of a state that are kept, without their values, the newest first. It returns
// store.ErrUnavailable.
func (s States) Versions(ctx context.Context, state store.Name) ([]store.Record, error) {
	versions, err := s.Service.Records(ctx, store.RecordQuery{
		Resource: state, Prefix: versionsPrefix, Limit: store.PageMax,
	})
	slices.SortFunc(versions, func(a, b store.Record) int { return cmp.Compare(b.Version, a.Version) })
	return versions, err
}

// Version returns a version of a state that is kept, store.ErrNotFound, store.ErrUnavailable, or the error of hold, which
// it calls with the size before it reads the version.
func (s States) Version(
	ctx context.Context, state store.Name, version int64, hold func(size int64) error,
) (store.Record, error) {
	missing := fmt.Errorf("%w: there is no version %d of %s any more, or never was", store.ErrNotFound, version, state)
	versions, err := s.Versions(ctx, state)
	if err != nil {
		return store.Record{}, err
	}
	at := slices.IndexFunc(versions, func(kept store.Record) bool { return kept.Version == version })
	if at < 0 {
		return store.Record{}, missing
	}
	if err := hold(versions[at].Size); err != nil {
		return store.Record{}, err
	}
	record, err := s.Service.DurableRecord(ctx, state, versions[at].Key)
	if err == nil && record.Version != version { // a newer one has taken its place meanwhile
		return store.Record{}, missing
	}
	return record, err
}

// versionKey returns the key for the version of a write: the one that it has, if the same request was applied before, so
// that it is a replay; or a new one; or that of the oldest version.
func (s States) versionKey(versions []store.Record, token, serial int64) store.Name {
	for _, kept := range versions {
		if kept.Token == token && kept.Sequence != nil && *kept.Sequence == serial {
			return kept.Key
		}
	}
	if len(versions) < s.VersionsMax {
		return store.Name(fmt.Sprintf(versionsPrefix+"%04d", len(versions)))
	}
	return versions[len(versions)-1].Key
}
