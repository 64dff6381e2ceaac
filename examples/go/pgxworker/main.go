// Command pgxworker is a worker that claims jobs, by pgx. It connects by PGHOST, PGDATABASE and the like.
//
// It ends when there is no job left. One that runs on waits here, for a second or a notification. An error ends it, too:
// its leases expire, and another worker takes its jobs.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const ttl = 10 * time.Second

var (
	owner   = fmt.Sprintf("worker-%d", os.Getpid()) // and the host's name, if there are several
	errLost = errors.New("the job is lost")
)

// job is one that was claimed. Its context ends when it is lost.
type job struct {
	Resource, LeaseID string
	Token             int64
	Row               struct{ ID, Seconds int64 }
	ctx               context.Context
	cancel            context.CancelFunc
}

func (j *job) work() error {
	if j.Row.Seconds < 0 {
		return errors.New("less than no time")
	}
	select {
	case <-time.After(time.Duration(j.Row.Seconds) * time.Second):
	case <-j.ctx.Done():
	}
	return j.ctx.Err()
}

// complete stores the outcome of the work. If the job is lost, another worker does it again.
func (j *job) complete(ctx context.Context, pool *pgxpool.Pool, failed error) error {
	update := "update jobs set done = true where id = $1"
	if failed != nil {
		update = "update jobs set attempts = attempts + 1, due = now() + interval '1 minute' where id = $1"
	}
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		batch := &pgx.Batch{}
		batch.Queue("select fence.guard($1, $2, 1)", j.Resource, j.Token)
		batch.Queue(update, j.Row.ID)
		batch.Queue("select fence.release($1, $2, $3, $4)", j.Resource, owner, j.LeaseID, j.Token)
		return tx.SendBatch(ctx, batch).Close()
	})
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == "LF103" {
		return errLost
	}
	return err
}

// renew renews the leases of a claim together until ctx ends, and cancels each job that is lost.
func renew(ctx context.Context, pool *pgxpool.Pool, jobs []*job) {
	for ; ctx.Err() == nil; time.Sleep(ttl / 3) {
		rows, _ := pool.Query(ctx, "select resource from fence.renew_claim($1, $2)", owner, jobs[0].LeaseID)
		held, err := pgx.CollectRows(rows, pgx.RowTo[string])
		for _, j := range jobs {
			if err == nil && !slices.Contains(held, j.Resource) {
				j.cancel() // also if it is completed
			}
		}
		if err != nil && ctx.Err() == nil {
			log.Printf("not renewed: %v", err) // the next one may succeed
		}
	}
}

// claim claims jobs, does them one after the other, and reports whether there were any.
func claim(ctx context.Context, pool *pgxpool.Pool) (bool, error) {
	rows, _ := pool.Query(ctx, `
		select resource, lease_id::text, fencing_token, job
		from fence.claim('jobs', 10, $1, $2, 'not done and due <= now()')`, owner, ttl.Milliseconds())
	jobs, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByPos[job])
	if err != nil || len(jobs) == 0 {
		return false, err
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	for _, j := range jobs {
		j.ctx, j.cancel = context.WithCancel(ctx)
	}
	go renew(ctx, pool, jobs)
	for _, j := range jobs {
		failed, err := j.work(), errLost
		if j.ctx.Err() == nil {
			err = j.complete(ctx, pool, failed)
		}
		switch {
		case err == nil && failed == nil:
			fmt.Printf("%s: done\n", j.Resource)
		case err == nil:
			fmt.Printf("%s: failed: %v\n", j.Resource, failed)
		case errors.Is(err, errLost):
			fmt.Printf("%s: lost\n", j.Resource)
		default:
			return false, err
		}
	}
	return true, nil
}

func main() {
	pool, err := pgxpool.New(context.Background(), "")
	for more := err == nil; more; {
		more, err = claim(context.Background(), pool)
	}
	if err != nil {
		log.Fatal(err)
	}
}
