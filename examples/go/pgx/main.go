// Command pgx shows a fenced update by pgx, and a zombie. It connects to the database by PGHOST, PGDATABASE and the
// like, and to the gateway at FENCEGATE_URL.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/pgxguard"
)

func main() {
	log.SetFlags(0)
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	pool, err := pgxpool.New(ctx, "")
	if err != nil {
		return err
	}
	defer pool.Close()
	client, err := lockclient.New(os.Getenv("FENCEGATE_URL"))
	if err != nil {
		return err
	}
	defer client.Close()

	const lock = "accounts/6"
	workerA, err := client.Acquire(ctx, lock, lockclient.WithLeaseOwner("worker-a"), lockclient.WithTTL(time.Second),
		lockclient.WithoutHeartbeat())
	if err != nil {
		return err
	}
	if err := withdraw(ctx, pool, workerA); err != nil {
		return err
	}

	fmt.Println("worker-a is frozen, and its lease expires")
	workerB, err := client.Acquire(ctx, lock, lockclient.WithLeaseOwner("worker-b"), lockclient.WithWait(time.Minute))
	if err != nil {
		return err
	}
	defer workerB.ReleaseOnce()

	fmt.Println("worker-a wakes up")
	if err := withdraw(ctx, pool, workerA); !errors.Is(err, lockclient.ErrNotHolder) {
		return fmt.Errorf("the zombie's write returned %w", err)
	} else if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		fmt.Printf("rejected: %s: %s\n", pgErr.Code, pgErr.Message)
	}
	return withdraw(ctx, pool, workerB)
}

func withdraw(ctx context.Context, pool *pgxpool.Pool, lease *lockclient.Lease) error {
	var balance int
	err := pgxguard.InTx(ctx, pool, lease, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, "update accounts set balance = balance - 10 where id = 6 returning balance").Scan(&balance)
	})
	if err == nil {
		fmt.Printf("%s: the balance is %d\n", lease.Owner(), balance)
	}
	return err
}
