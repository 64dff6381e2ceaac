//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/internal/apikey"
	"github.com/fencegate/fencegate/internal/devcert"
	"github.com/fencegate/fencegate/internal/test/testenv/gateway"
	"github.com/fencegate/fencegate/internal/test/testenv/peers"
	"github.com/fencegate/fencegate/store"
)

// errAnswer is an answer that was not expected.
var errAnswer = errors.New("unexpected answer")

// wire is one HTTP/1.1 connection whose requests are made by hand: net/http's client costs as much CPU as its server
// does, and the load has to leave the machine to what it measures.
type wire struct {
	conn       net.Conn
	in         *bufio.Reader
	credential string // "": none
	request    []byte
}

// begin begins a request in the buffer; the caller adds headers, each ended by \r\n.
func (w *wire) begin(method, path string) {
	w.request = append(w.request[:0], method+" "+path+" HTTP/1.1\r\nHost: localhost\r\n"...)
	if w.credential != "" {
		w.request = append(w.request, "Authorization: Bearer "+w.credential+"\r\n"...)
	}
}

// send ends the headers, adds the body and sends all at once.
func (w *wire) send(body []byte) error {
	w.request = append(w.request, "Content-Length: "...)
	w.request = strconv.AppendInt(w.request, int64(len(body)), 10)
	w.request = append(w.request, "\r\n\r\n"...)
	w.request = append(w.request, body...)
	_, err := w.conn.Write(w.request)
	return err
}

// answer reads an answer of one of some statuses, and returns its body.
func (w *wire) answer(statuses ...int) ([]byte, error) {
	answer, err := http.ReadResponse(w.in, nil)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(answer.Body)
	err = errors.Join(err, answer.Body.Close())
	if err == nil && !slices.Contains(statuses, answer.StatusCode) {
		err = fmt.Errorf("%w: status %d: %s", errAnswer, answer.StatusCode, body)
	}
	return body, err
}

// clientAccess is what a server asks of its clients: a credential, TLS, or nothing.
type clientAccess struct {
	credential string
	tls        *tls.Config
}

func (a clientAccess) dial(ctx context.Context, address string) (net.Conn, error) {
	if a.tls != nil {
		return (&tls.Dialer{Config: a.tls}).DialContext(ctx, "tcp", address)
	}
	return new(net.Dialer).DialContext(ctx, "tcp", address)
}

// wireWrite makes a request over a client's wire.
type wireWrite func(s setting, wire *wire, w *writer) error

// through is a target whose clients write to gateways in turn, without credentials.
func (w *writes) through(write wireWrite, gateways ...*gateway.Process) writeTarget {
	var urls []string
	var pids []int
	for _, gateway := range gateways {
		urls, pids = append(urls, gateway.URL), append(pids, gateway.PID())
	}
	return w.overWires(urls, clientAccess{}, write, pids...)
}

// overWires is a target whose clients write to servers in turn, each over a wire of its own. When ctx ends the
// connections are closed, and what waits for an answer fails. Where clients share resources they write without numbers,
// under a policy: their requests take several connections, and have no order.
func (w *writes) overWires(servers []string, a clientAccess, write wireWrite, pids ...int) writeTarget {
	return writeTarget{servers: pids, open: func(ctx context.Context, s setting) (writeSession, error) {
		var wires []*wire
		prefix := string(s.layout.prefix)
		closeWires := func() {
			for _, wire := range wires {
				_ = wire.conn.Close()
			}
		}
		stop := context.AfterFunc(ctx, closeWires)
		closeAll := func() error {
			stop()
			closeWires()
			if s.shared() {
				return w.Store.DeletePolicy(context.WithoutCancel(ctx), prefix)
			}
			return nil
		}
		if s.shared() {
			err := w.Store.PutPolicy(ctx, store.Policy{Prefix: prefix, Rule: store.RuleSameToken,
				Authority: store.AuthorityBuiltin})
			if err != nil {
				return writeSession{}, err
			}
		}
		for client := range s.clients {
			base, err := url.Parse(servers[client%len(servers)])
			if err != nil {
				return writeSession{}, errors.Join(err, closeAll())
			}
			conn, err := a.dial(ctx, base.Host)
			if err != nil {
				return writeSession{}, errors.Join(err, closeAll())
			}
			wires = append(wires, &wire{conn: conn, in: bufio.NewReaderSize(conn, 16<<10), credential: a.credential})
		}
		return writeSession{close: closeAll,
			write: func(_ context.Context, client int, of *writer) error { return write(s, wires[client], of) }}, nil
	}}
}

// putting sends each write as a request of its own.
func putting(s setting, wire *wire, w *writer) error {
	return wire.put(w, !s.shared(), http.StatusOK, http.StatusCreated)
}

// put sends a write, and expects one of some statuses.
func (w *wire) put(of *writer, numbered bool, statuses ...int) error {
	r, value := of.next()
	w.begin(http.MethodPut, "/v1/resources/"+string(r.name)+"/records/"+benchKey)
	w.request = append(w.request, "Content-Type: "+contentType+"\r\nFencing-Token: "...)
	w.request = strconv.AppendInt(w.request, r.token, 10)
	if numbered {
		r.sequence++
		w.request = append(w.request, '.')
		w.request = strconv.AppendInt(w.request, r.sequence, 10)
	}
	w.request = append(w.request, "\r\n"...)
	if err := w.send(value); err != nil {
		return err
	}
	_, err := w.answer(statuses...)
	return err
}

// fleet is single writes through so many gateways, of which one runs already.
func (w *writes) fleet(ctx context.Context, count int) (writeTarget, error) {
	gateways := []*gateway.Process{w.gateway}
	for range count - 1 {
		gateway, err := w.Gateway(ctx)
		if err != nil {
			return writeTarget{}, err
		}
		gateways = append(gateways, gateway)
	}
	return w.through(putting, gateways...), nil
}

// pooled is a gateway behind PgBouncer in transaction mode.
func (w *writes) pooled(ctx context.Context) (writeTarget, error) {
	pooler, err := peers.StartPgBouncer(ctx, w.URL)
	if err := w.Keep("http-pooled", pooler, err); err != nil {
		return writeTarget{}, err
	}
	pooled, err := peers.ThroughPgBouncer(pooler, w.URL)
	if err != nil {
		return writeTarget{}, err
	}
	gateway, err := w.Gateway(ctx, "--database-url", pooled, "--listen-url", w.URL)
	if err != nil {
		return writeTarget{}, err
	}
	return w.overWires([]string{gateway.URL}, clientAccess{}, putting, gateway.PID(), pooler.PID()), nil
}

// keyed is a gateway that wants an API key, and is spoken to by encryption; nil: without TLS.
func (w *writes) keyed(ctx context.Context, encryption *tls.Config, flags ...string) (writeTarget, error) {
	credential, id, digest := apikey.New()
	_, err := w.Store.CreateKey(ctx, store.KeyRequest{
		ID: id, Digest: digest, CreatedBy: "bench", Principal: "bench", Grants: []access.Grant{{Scope: access.Write}},
	})
	if err != nil {
		return writeTarget{}, err
	}
	gateway, err := w.Gateway(ctx, append(flags, "--auth", "keys")...)
	if err != nil {
		return writeTarget{}, err
	}
	return w.overWires([]string{gateway.URL}, clientAccess{credential, encryption}, putting, gateway.PID()), nil
}

// encrypted is a gateway that wants an API key over TLS.
func (w *writes) encrypted(ctx context.Context) (writeTarget, error) {
	authority, err := devcert.NewAuthority("bench")
	if err != nil {
		return writeTarget{}, err
	}
	server, err := authority.Issue(devcert.Request{Name: "gateway", Hosts: []string{"127.0.0.1"}})
	if err != nil {
		return writeTarget{}, err
	}
	dir, err := w.TempDir()
	certificate, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	if err == nil {
		err = errors.Join(os.WriteFile(certificate, server.Certificate, 0o600), os.WriteFile(key, server.Key, 0o600))
	}
	if err != nil {
		return writeTarget{}, err
	}
	encryption := &tls.Config{RootCAs: authority.Pool(), MinVersion: tls.VersionTLS13}
	return w.keyed(ctx, encryption, "--tls-cert", certificate, "--tls-key", key)
}

// floor sends the same requests to a handler that does nothing.
func (w *writes) floor(ctx context.Context) (writeTarget, error) {
	self, err := os.Executable()
	if err != nil {
		return writeTarget{}, err
	}
	empty, err := peers.StartProgram(ctx, self, func(address string) []string {
		return []string{"floor", "--listen", address}
	})
	if err != nil {
		return writeTarget{}, err
	}
	w.OnClose(empty.Stop)
	return w.overWires([]string{"http://" + empty.Address}, clientAccess{}, putting, empty.PID()), nil
}

// arrayWrites is how many writes an array carries.
const arrayWrites = 100

// arrays sends 100 writes when those before are answered.
func (w *writes) arrays() writeTarget {
	t := w.through(array, w.gateway)
	t.perRequest = arrayWrites
	return t
}

func array(s setting, wire *wire, w *writer) error {
	wire.begin(http.MethodPost, "/v1/writes")
	wire.request = append(wire.request, "Content-Type: application/json\r\n"...)
	if err := wire.send(w.array(!s.shared())); err != nil {
		return err
	}
	answer, err := wire.answer(http.StatusOK)
	if err == nil && (bytes.Count(answer, []byte(`{"status":`)) != arrayWrites || bytes.Contains(answer, []byte(`"code":`))) {
		err = fmt.Errorf("%w: %.300s", errAnswer, answer)
	}
	return err
}

// array is the text of the next 100 writes.
func (w *writer) array(numbered bool) []byte {
	text := w.text[:0]
	text = append(text, '[')
	for i := range arrayWrites {
		if i > 0 {
			text = append(text, ',')
		}
		r, value := w.next()
		text = append(text, `{"op":"put","resource":"`+string(r.name)+`","key":"`+benchKey+`","fencing_token":`...)
		text = strconv.AppendInt(text, r.token, 10)
		if numbered {
			r.sequence++
			text = append(text, `,"sequence":`...)
			text = strconv.AppendInt(text, r.sequence, 10)
		}
		text = append(text, `,"value_base64":"`...)
		text = base64.StdEncoding.AppendEncode(text, value)
		text = append(text, "\"}"...)
	}
	text = append(text, ']')
	w.text = text
	return text
}
