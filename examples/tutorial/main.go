// Command tutorial sells tickets over HTTP: POST /events/{event}/tickets prints the next one and answers its number. Any
// number of instances may run at the same time. docs/quickstart.md explains it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/fencegate/fencegate/lockclient"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	listen := flag.String("listen", "127.0.0.1:9001", "address to listen on")
	printer := flag.String("printer", os.DevNull, "file or device that tickets are printed to")
	flag.Parse()
	client, err := lockclient.New(os.Getenv("FENCEGATE_URL"))
	if err != nil {
		return err
	}
	defer client.Close()
	shop := shop{client: client, printer: *printer}
	server := &http.Server{Addr: *listen, Handler: shop.routes(), ReadHeaderTimeout: 10 * time.Second}
	return server.ListenAndServe()
}

type shop struct {
	client  *lockclient.Client
	printer string
}

func (s shop) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /events/{event}/tickets", func(w http.ResponseWriter, r *http.Request) {
		number, err := s.sell(r.Context(), "events/"+r.PathValue("event"))
		switch {
		case err == nil:
			_, _ = fmt.Fprintf(w, "ticket %d is yours\n", number)
		case errors.Is(err, lockclient.ErrNotHolder):
			log.Print(err) // who holds the lock now, and for how long this process was frozen
			http.Error(w, "another instance took over: nothing is sold, try again", http.StatusConflict)
		default:
			log.Print(err)
			http.Error(w, "try again later", http.StatusServiceUnavailable)
		}
	})
	return mux
}

// sell sells the next ticket of an event, and returns its number.
func (s shop) sell(ctx context.Context, event string) (number int, err error) {
	work := func(_ context.Context, lease *lockclient.Lease) error {
		sold, err := s.sold(ctx, event)
		if err != nil {
			return err
		}
		number = sold + 1
		if err := s.print(event, number); err != nil {
			return err
		}
		// Not with the context of the lease: whether the lease is lost, only the fence decides.
		_, err = lease.Put(ctx, "sold", []byte(strconv.Itoa(number)), lockclient.WithContentType("text/plain"))
		return err
	}
	return number, s.client.Do(ctx, event, work, lockclient.WithTTL(5*time.Second))
}

// sold returns how many tickets are sold.
func (s shop) sold(ctx context.Context, event string) (int, error) {
	record, err := s.client.API().Get(ctx, event, "sold")
	if errors.Is(err, lockclient.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(record.Value))
}

// print takes as long as the printer does.
func (s shop) print(event string, number int) error {
	log.Printf("print ticket %d", number)
	return os.WriteFile(s.printer, fmt.Appendf(nil, "%s: ticket %d\n", event, number), 0o600) //nolint:gosec // the operator names it
}
