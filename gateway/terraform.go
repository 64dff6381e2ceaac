package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/gorilla/mux"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/gateway/metrics"
	"github.com/fencegate/fencegate/gateway/terraform"
	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/store"
)

// The backend "http" of Terraform and OpenTofu. Package terraform says how states and their locks are kept.

// statesPrefix begins the names of the resources that are states.
const statesPrefix = "terraform/"

// stateName reads the name of a state's resource. The reserved segments follow it in paths.
func stateName(r *http.Request) (store.Name, error) {
	return parseName("state", statesPrefix+pathVariable(r, "state"), "lock", "unlock", "history")
}

// terraformRoutes adds the routes of states. Terraform's methods LOCK and UNLOCK have paths with POST, too: not every
// proxy lets them pass.
func (g *Gateway) terraformRoutes(router *mux.Router) {
	const state = "/v1/terraform/{state" + anyText
	g.route(router, state+"/history/{version"+anyText, g.ifTerraform(methods{"GET": g.getStateVersion}))
	g.route(router, state+"/history", g.ifTerraform(methods{"GET": g.answering(g.listStateVersions)}))
	g.route(router, state+"/lock", g.ifTerraform(methods{"POST": g.lockState}))
	g.route(router, state+"/unlock", g.ifTerraform(methods{"POST": g.unlockState}))
	g.route(router, state, g.ifTerraform(methods{
		"GET": g.getState, "POST": g.postState, "DELETE": g.deleteState, "LOCK": g.lockState, "UNLOCK": g.unlockState,
	}))
}

// ifTerraform refuses requests if the gateway does not serve states.
func (g *Gateway) ifTerraform(handlers methods) methods {
	if g.config.Terraform {
		return handlers
	}
	refused := methods{}
	for method := range handlers {
		refused[method] = func(*answerWriter, *http.Request) error {
			return problem(http.StatusNotFound, api.CodeNotFound,
				"This gateway serves no states of Terraform: start it with --terraform.")
		}
	}
	return refused
}

func (g *Gateway) lockState(w *answerWriter, r *http.Request) error {
	state, body, err := g.readState(w, r)
	if err != nil {
		return err
	}
	info, err := terraform.ParseLockInfo(body)
	if err != nil {
		return err
	}
	request, err := info.Request(state, recorded(w.principal), g.config.TerraformLockTTL)
	if err != nil {
		return err
	}
	ctx := g.work(r)
	lease, err := g.grant(ctx, w, r, request)
	if held, ok := errors.AsType[*store.HeldError](err); ok {
		return g.answerLocked(ctx, w, held)
	}
	if err == nil {
		w.Header().Set(api.HeaderFencingToken, api.FencingToken{Token: lease.Token}.String())
	}
	return answerJSON(w, info, err)
}

// readState reads the name of a state and a body.
func (g *Gateway) readState(w *answerWriter, r *http.Request) (store.Name, []byte, error) {
	state, err := stateName(r)
	if err != nil {
		return "", nil, err
	}
	if _, err := query(r); err != nil {
		return "", nil, err
	}
	body, err := g.readBody(w, r)
	return state, body, err
}

// answerLocked answers as Terraform expects: with the holder's description of its lock.
func (g *Gateway) answerLocked(ctx context.Context, w *answerWriter, held *store.HeldError) error {
	lock, err := g.backend.Lock(ctx, held.Lock)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	w.code = api.CodeLockHeld
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusLocked)
	encodeJSON(w, terraform.HolderInfo(lock, held))
	return nil
}

// unlockState releases a lock by its ID. Without a body, as "terraform force-unlock" sends it, it breaks the lock.
func (g *Gateway) unlockState(w *answerWriter, r *http.Request) error {
	state, body, err := g.readState(w, r)
	if err != nil {
		return err
	}
	ctx := g.work(r)
	if len(bytes.TrimSpace(body)) == 0 {
		if rule := onName("", access.Admin); !w.principal.May(access.Admin, string(state)) {
			return rule.forbidden()
		}
		answer, err := g.breakNamed(ctx, w, r, state, "terraform force-unlock")
		return answerJSON(w, answer, err)
	}
	info, err := terraform.ParseLockInfo(body)
	if err != nil {
		return err
	}
	return answerJSON(w, api.Released{Released: true}, g.releaseState(ctx, w, state, info))
}

// releaseState releases a lock by its ID. It succeeds if that holds nothing any more: otherwise a client that has lost
// its lock would be advised by Terraform to break its successor's.
func (g *Gateway) releaseState(ctx context.Context, w *answerWriter, state store.Name, info terraform.LockInfo) error {
	lease, err := g.backend.RequestedLease(ctx, state, info.ID)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil
	case err != nil:
		return err
	case lease.Principal != recorded(w.principal):
		return &store.LostError{Lock: state, Reason: "mismatch"}
	}
	if err := g.releaseLease(ctx, lease.Ref()); !errors.Is(err, store.ErrLeaseLost) {
		return err
	}
	return nil
}

func (g *Gateway) getState(w *answerWriter, r *http.Request) error {
	state, err := stateName(r)
	if err != nil {
		return err
	}
	if _, err := query(r); err != nil {
		return err
	}
	ctx := g.work(r)
	record, err := g.backend.DurableRecord(ctx, state, terraform.StateKey)
	if err != nil {
		return err
	}
	return answerRecord(w, r, record)
}

func (g *Gateway) postState(w *answerWriter, r *http.Request) error {
	return g.writeState(w, r, func(writer terraform.Writer) (terraform.Written, error) {
		body, err := g.readBody(w, r)
		if err != nil {
			return terraform.Written{}, err
		}
		if err := checkMD5(r, body); err != nil {
			return terraform.Written{}, err
		}
		state, err := terraform.ParseState(body)
		if err != nil {
			return terraform.Written{}, err
		}
		return g.states.Put(g.work(r), writer, state)
	})
}

func (g *Gateway) deleteState(w *answerWriter, r *http.Request) error {
	return g.writeState(w, r, func(writer terraform.Writer) (terraform.Written, error) {
		return g.states.Delete(g.work(r), writer)
	})
}

// writeState answers a write, which the parameter ID must name the lock of. write begins its work (Gateway.work) when the
// body has arrived.
func (g *Gateway) writeState(
	w *answerWriter, r *http.Request, write func(terraform.Writer) (terraform.Written, error),
) error {
	state, err := stateName(r)
	if err != nil {
		return err
	}
	parameters := readParameters(r, "ID")
	if parameters.err != nil {
		return parameters.err
	}
	writer := terraform.Writer{State: state, LockID: parameters.Get("ID"), Principal: recorded(w.principal)}
	begun := time.Now()
	var written terraform.Written
	if writer.LockID != "" {
		written, err = write(writer)
	} else {
		_, err = g.states.Lease(g.work(r), writer) // the refusal needs no body
	}
	g.countWrite(w, r, metrics.SourceTransaction, time.Since(begun), err)
	return answerJSON(w, api.WriteResult{
		Resource: string(state), Key: string(terraform.StateKey), Version: written.Version,
		FencingToken: written.Token, Sequence: &written.Sequence, Replayed: written.Replayed,
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
		answer := rejectionProblem(rejected)
		answer.Detail = "The request names no lock: the parameter ID is missing. Set lock_address and unlock_address in " +
			"the backend's configuration, and don't use -lock=false."
		return answer
	case store.VerdictLeaseMismatch:
		reason = "mismatch"
	case store.VerdictLeaseExpired:
		reason = "expired"
	}
	answer := problem(http.StatusConflict, api.CodeLeaseLost, "")
	answer.Title, answer.Reason, answer.Resource = store.ErrLeaseLost.Error(), reason, string(rejected.Resource)
	answer.Detail = fmt.Sprintf("The lock with this ID may not write %s any more (%s); the state is unchanged. Compare "+
		"errored.tfstate with the current state before you push it.", rejected.Resource, rejected.Verdict)
	if reason == "reused" {
		answer.Detail = fmt.Sprintf("This lock has written serial %d or a later one of %s before; the state is unchanged.",
			*rejected.Sequence, rejected.Resource)
	}
	return answer
}

func (g *Gateway) listStateVersions(ctx context.Context, r *http.Request) (any, error) {
	state, err := stateName(r)
	if err != nil {
		return nil, err
	}
	if _, err := query(r); err != nil {
		return nil, err
	}
	versions, err := g.states.Versions(ctx, state)
	return api.StateVersions{Resource: string(state), Versions: convert(versions, stateVersion)}, err
}

func stateVersion(record store.Record) api.StateVersion {
	return api.StateVersion{
		Version: record.Version, FencingToken: record.Token, Serial: record.Sequence, Size: record.Size,
		UpdatedAt: api.Time{Time: record.UpdatedAt},
	}
}

func (g *Gateway) getStateVersion(w *answerWriter, r *http.Request) error {
	state, err := stateName(r)
	if err != nil {
		return err
	}
	if _, err := query(r); err != nil {
		return err
	}
	version, err := strconv.ParseInt(pathVariable(r, "version"), 10, 64)
	if err != nil || version < 1 {
		return invalid("The version %q is not one that the history has.", clip(pathVariable(r, "version")))
	}
	ctx := g.work(r)
	record, err := g.states.Version(ctx, state, version)
	if err != nil {
		return err
	}
	return answerRecord(w, r, record)
}
