package writes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/fencegate/fencegate/store"
)

// policies are for clients that share resources over several connections.
type policies interface {
	PutPolicy(ctx context.Context, policy store.Policy) error
	DeletePolicy(ctx context.Context, prefix string) error
}

// overWires is the target whose clients write to the server at baseURL, or in turn to it and those of t.beside, each over
// a wire of its own. Where they share resources, st lets them write without numbers; nil: the server looks at no number.
func (t target) overWires(baseURL string, st policies, write func(*wires, setting) writeFunc) target {
	t.open = func(ctx context.Context, s setting) (session, error) {
		var addresses []string
		for _, server := range append([]string{baseURL}, t.beside...) {
			base, err := url.Parse(server)
			if err != nil {
				return session{}, fmt.Errorf("the gateway's URL: %w", err)
			}
			addresses = append(addresses, base.Host)
		}
		restore, err := allowUnnumbered(ctx, st, s)
		if err != nil {
			return session{}, err
		}
		wires, err := dialWires(ctx, addresses, s.clients, t.access)
		if err != nil {
			return session{}, errors.Join(err, restore())
		}
		return session{write: write(wires, s), close: func() error {
			wires.close()
			return restore()
		}}, nil
	}
	return t
}

// httpTarget makes single writes through the gateway at baseURL.
func httpTarget(baseURL string, pids []int, st policies) target {
	return target{name: nameHTTP, role: roleGateway, pids: pids}.overWires(baseURL, st, putting)
}

// floorTarget sends the same requests to a handler that does nothing.
func floorTarget(baseURL string, pids []int) target {
	return target{name: nameFloor, role: nameFloor, pids: pids}.overWires(baseURL, nil, putting)
}

// allowUnnumbered lets clients that share resources write without numbers: their requests take several connections, and
// have no order.
func allowUnnumbered(ctx context.Context, st policies, s setting) (restore func() error, err error) {
	if st == nil || !s.shared() {
		return func() error { return nil }, nil
	}
	err = st.PutPolicy(ctx, store.Policy{Prefix: string(s.layout.prefix), Rule: store.RuleSameToken,
		Authority: store.AuthorityBuiltin})
	return func() error { return st.DeletePolicy(context.WithoutCancel(ctx), string(s.layout.prefix)) }, err
}

// putting sends each write as a request of its own.
func putting(wires *wires, s setting) writeFunc {
	return wires.put(!s.shared(), http.StatusOK, http.StatusCreated)
}

// put sends each write as a request of its own, and expects one of two statuses.
func (w *wires) put(numbered bool, either, or int) writeFunc {
	return func(_ context.Context, client int, writer *writer) error {
		r, value := writer.next()
		wire := w.all[client]
		wire.beginPut(r, numbered)
		if err := wire.send(value); err != nil {
			return err
		}
		return wire.expect(either, or)
	}
}

func (w *wire) beginPut(r *resource, numbered bool) {
	w.begin(http.MethodPut, "/v1/resources/"+string(r.name)+"/records/"+benchKey)
	w.request = append(w.request, "Content-Type: "+contentType+"\r\nFencing-Token: "...)
	w.request = strconv.AppendInt(w.request, r.token, 10)
	if numbered {
		r.sequence++
		w.request = append(w.request, '.')
		w.request = strconv.AppendInt(w.request, r.sequence, 10)
	}
	w.request = append(w.request, "\r\n"...)
}

// expect reads an answer of one of two statuses.
func (w *wire) expect(either, or int) error {
	status, body, err := w.answer()
	if err != nil {
		return err
	}
	if status != either && status != or {
		return fmt.Errorf("%w: status %d: %s", errAnswer, status, body)
	}
	return nil
}
