package terraform

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/gorilla/mux"

	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/gateway/locks"
	"github.com/fencegate/fencegate/gateway/metrics"
	"github.com/fencegate/fencegate/gateway/writes"
	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
)

// Config configures the endpoints of Terraform, as gateway.Config says.
type Config struct {
	Enabled       bool
	LockTTL       time.Duration
	StateBytesMax int64
	VersionsMax   int
}

// largeBytes is the size from which states are stored one at a time: the statement that stores one holds some five
// times its size in memory.
const largeBytes = 1 << 20

// Endpoints are the backend "http" of Terraform and OpenTofu.
type Endpoints struct {
	*endpoint.Server

	locks   *locks.Endpoints
	writes  *writes.Endpoints
	states  States
	config  Config
	storing chan struct{} // has the write of a large state that is in the database
}

// New returns the endpoints of Terraform.
func New(
	server *endpoint.Server, locks *locks.Endpoints, writes *writes.Endpoints, service Service,
	config Config,
) *Endpoints {
	return &Endpoints{
		Server: server, locks: locks, writes: writes,
		states: States{Service: service, VersionsMax: config.VersionsMax}, config: config, storing: make(chan struct{}, 1),
	}
}

// stateName reads the name of a state's resource. The reserved segments follow it in paths.
func stateName(r *http.Request) (store.Name, error) {
	return endpoint.ParseName("state", endpoint.StatesPrefix+endpoint.PathVariable(r, "state"), "lock", "unlock", "history")
}

// Routes adds the routes of states. Terraform's methods LOCK and UNLOCK have paths with POST, too: not every
// proxy lets them pass.
func (e *Endpoints) Routes(router *mux.Router) {
	const state = "/v1/terraform/{state" + endpoint.AnyText
	e.Route(router, state+"/history/{version"+endpoint.AnyText, e.ifTerraform(endpoint.Methods{"GET": e.getStateVersion}))
	e.Route(router, state+"/history", e.ifTerraform(endpoint.Methods{"GET": e.WithoutBody(e.listStateVersions)}))
	e.Route(router, state+"/lock", e.ifTerraform(endpoint.Methods{"POST": e.lockState}))
	e.Route(router, state+"/unlock", e.ifTerraform(endpoint.Methods{"POST": e.unlockState}))
	e.Route(router, state, e.ifTerraform(endpoint.Methods{
		"GET": e.getState, "POST": e.postState, "DELETE": e.deleteState, "LOCK": e.lockState, "UNLOCK": e.unlockState,
	}))
}

// ifTerraform refuses requests if the gateway does not serve states.
func (e *Endpoints) ifTerraform(handlers endpoint.Methods) endpoint.Methods {
	if e.config.Enabled {
		return handlers
	}
	refused := endpoint.Methods{}
	for method := range handlers {
		refused[method] = func(*endpoint.Answer, *http.Request) error {
			return endpoint.Problem(http.StatusNotFound, api.CodeNotFound,
				"This gateway serves no states of Terraform: start it with --terraform.")
		}
	}
	return refused
}

func (e *Endpoints) lockState(w *endpoint.Answer, r *http.Request) error {
	parameters := endpoint.ReadParameters(r, "ttl_ms")
	ttl := parameters.Integer("ttl_ms", int(store.TTLMin.Milliseconds()), int(store.TTLMax.Milliseconds()),
		int(e.config.LockTTL.Milliseconds()))
	if parameters.Err != nil {
		return parameters.Err
	}
	state, body, err := e.readState(w, r)
	if err != nil {
		return err
	}
	info, err := ParseLockInfo(body)
	if err != nil {
		return err
	}
	request, err := info.Request(state, endpoint.NameOf(w.Principal), time.Duration(ttl)*time.Millisecond)
	if err != nil {
		return err
	}
	ctx := e.Work(r)
	lease, err := e.locks.Grant(ctx, w, r, &request)
	if held, ok := errors.AsType[*store.HeldError](err); ok {
		return e.answerLocked(ctx, w, held)
	}
	if err == nil {
		w.Header().Set(api.HeaderFencingToken, api.FencingToken{Token: lease.Token}.String())
	}
	return endpoint.AnswerJSON(w, info, err)
}

// readState reads the name of a state and a body.
func (e *Endpoints) readState(w *endpoint.Answer, r *http.Request) (store.Name, []byte, error) {
	state, err := stateName(r)
	if err != nil {
		return "", nil, err
	}
	body, err := e.ReadBody(w, r)
	return state, body, err
}

// answerLocked answers as Terraform expects: with the holder's description of its lock.
func (e *Endpoints) answerLocked(ctx context.Context, w *endpoint.Answer, held *store.HeldError) error {
	lock, err := e.states.Service.Lock(ctx, held.Lock)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	w.Code = api.CodeLockHeld
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusLocked)
	endpoint.EncodeJSON(w, HolderInfo(lock, held))
	return nil
}

// unlockState releases a lock by its ID. Without a body, as "terraform force-unlock" sends it, it breaks the lock.
func (e *Endpoints) unlockState(w *endpoint.Answer, r *http.Request) error {
	if _, err := endpoint.Query(r); err != nil {
		return err
	}
	state, body, err := e.readState(w, r)
	if err != nil {
		return err
	}
	ctx := e.Work(r)
	if len(bytes.TrimSpace(body)) == 0 {
		if rule := endpoint.OnName("", access.Admin); !w.Principal.May(access.Admin, string(state)) {
			return rule.Forbidden()
		}
		answer, err := e.locks.Break(ctx, w, r, state, "terraform force-unlock")
		return endpoint.AnswerJSON(w, answer, err)
	}
	info, err := ParseLockInfo(body)
	if err != nil {
		return err
	}
	return endpoint.AnswerJSON(w, api.Released{Released: true}, e.releaseState(ctx, w, state, info))
}

// releaseState releases a lock by its ID. It also succeeds if the lock is already gone. Otherwise Terraform would
// advise force-unlock, which breaks the next holder's lock.
func (e *Endpoints) releaseState(ctx context.Context, w *endpoint.Answer, state store.Name, info LockInfo) error {
	lease, err := e.states.Service.RequestedLease(ctx, state, info.ID)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil
	case err != nil:
		return err
	case lease.Principal != endpoint.NameOf(w.Principal):
		return &store.LostError{Lock: state, Reason: "mismatch"}
	}
	if err := e.locks.Release(ctx, lease.Ref()); !errors.Is(err, store.ErrLeaseLost) {
		return err
	}
	return nil
}

func (e *Endpoints) getState(w *endpoint.Answer, r *http.Request) error {
	state, err := stateName(r)
	if err != nil {
		return err
	}
	if _, err := endpoint.Query(r); err != nil {
		return err
	}
	ctx := e.Work(r)
	size, err := e.states.Size(ctx, state)
	if err != nil {
		return err
	}
	if err := e.Hold(w, r, size); err != nil {
		return err
	}
	record, err := e.states.Service.DurableRecord(ctx, state, StateKey)
	if err != nil {
		return err
	}
	return writes.AnswerRecord(w, r, record)
}

func (e *Endpoints) postState(w *endpoint.Answer, r *http.Request) error {
	return e.writeState(w, r, func(writer Writer) (Written, error) {
		limit := endpoint.BodyLimit{Bytes: e.config.StateBytesMax, Flag: "--terraform-state-bytes-max"}
		body, err := e.ReadBodyWithin(w, r, limit)
		if err != nil {
			return Written{}, err
		}
		if err := endpoint.CheckMD5(r, body); err != nil {
			return Written{}, err
		}
		state, err := ParseState(body)
		if err != nil {
			return Written{}, err
		}
		return e.put(e.Work(r), writer, state)
	})
}

// put stores a state, and renews its lock: Terraform does not, but it writes while it applies. A large state waits until
// no other is being stored.
func (e *Endpoints) put(ctx context.Context, writer Writer, state State) (Written, error) {
	if len(state.body) > largeBytes {
		select {
		case e.storing <- struct{}{}:
			defer func() { <-e.storing }()
		case <-ctx.Done():
			return Written{}, endpoint.Busy("This gateway stores another large state. Nothing was changed: try again.")
		}
	}
	written, err := e.states.Put(ctx, writer, state)
	if err == nil {
		// Fails for a lock that has expired, whose holder may write on until another one is granted.
		_, _ = e.states.Service.Renew(ctx, written.Lease, 0)
	}
	return written, err
}

func (e *Endpoints) deleteState(w *endpoint.Answer, r *http.Request) error {
	return e.writeState(w, r, func(writer Writer) (Written, error) {
		return e.states.Delete(e.Work(r), writer)
	})
}

// writeState answers a write, which the parameter ID must name the lock of. write begins its work (Gateway.work) when the
// body has arrived.
func (e *Endpoints) writeState(
	w *endpoint.Answer, r *http.Request, write func(Writer) (Written, error),
) error {
	state, err := stateName(r)
	if err != nil {
		return err
	}
	parameters := endpoint.ReadParameters(r, "ID")
	if parameters.Err != nil {
		return parameters.Err
	}
	writer := Writer{State: state, LockID: parameters.Get("ID"), Principal: endpoint.NameOf(w.Principal)}
	begun := time.Now()
	var written Written
	if writer.LockID != "" {
		written, err = write(writer)
	} else {
		_, err = e.states.Lease(e.Work(r), writer) // the refusal needs no body
	}
	e.writes.Count(w, r, metrics.SourceTransaction, time.Since(begun), err)
	return endpoint.AnswerJSON(w, api.WriteResult{
		Resource: string(state), Key: string(StateKey), Version: written.Version,
		FencingToken: written.Lease.Token, Sequence: &written.Sequence, Replayed: written.Replayed,
	}, refusedState(err))
}

// refusedState returns the answer to a write of a state. Terraform retries none of these, and writes errored.tfstate.
func refusedState(err error) error {
	rejected, ok := errors.AsType[*store.RejectedError](err)
	if !ok {
		return err
	}
	reason := rejected.Reason
	switch rejected.Verdict {
	case store.VerdictTokenRequired:
		answer := endpoint.RejectionProblem(rejected)
		answer.Detail = "The request names no lock: the parameter ID is missing. Set lock_address and unlock_address in " +
			"the backend's configuration, and don't use -lock=false."
		return answer
	case store.VerdictLeaseMismatch:
		reason = "mismatch"
	case store.VerdictLeaseExpired:
		reason = "expired"
	}
	answer := endpoint.Problem(http.StatusConflict, api.CodeLeaseLost, "")
	answer.Title, answer.Reason, answer.Resource = store.ErrLeaseLost.Error(), reason, string(rejected.Resource)
	answer.Detail = fmt.Sprintf("The lock with this ID may not write %s any more (%s); the state is unchanged. Compare "+
		"errored.tfstate with the current state before you push it.", rejected.Resource, rejected.Verdict)
	if reason == "reused" {
		answer.Detail = fmt.Sprintf("This lock has written serial %d or a later one of %s before; the state is unchanged.",
			*rejected.Sequence, rejected.Resource)
	}
	return answer
}

func (e *Endpoints) listStateVersions(ctx context.Context, r *http.Request) (any, error) {
	state, err := stateName(r)
	if err != nil {
		return nil, err
	}
	if _, err := endpoint.Query(r); err != nil {
		return nil, err
	}
	versions, err := e.states.Versions(ctx, state)
	return api.StateVersions{Resource: string(state), Versions: endpoint.Convert(versions, stateVersion)}, err
}

func stateVersion(record store.Record) api.StateVersion {
	return api.StateVersion{
		Version: record.Version, FencingToken: record.Token, Serial: record.Sequence, Size: record.Size,
		UpdatedAt: api.Time{Time: record.UpdatedAt},
	}
}

func (e *Endpoints) getStateVersion(w *endpoint.Answer, r *http.Request) error {
	state, err := stateName(r)
	if err != nil {
		return err
	}
	if _, err := endpoint.Query(r); err != nil {
		return err
	}
	version, err := strconv.ParseInt(endpoint.PathVariable(r, "version"), 10, 64)
	if err != nil || version < 1 {
		return endpoint.Invalid(
			"The version %q is not one that the history has.", endpoint.Clip(endpoint.PathVariable(r, "version")),
		)
	}
	ctx := e.Work(r)
	record, err := e.states.Version(ctx, state, version, func(size int64) error { return e.Hold(w, r, size) })
	if err != nil {
		return err
	}
	return writes.AnswerRecord(w, r, record)
}
