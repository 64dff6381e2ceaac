// Command databasesql shows a fenced update by database/sql and lib/pq, and a zombie. It connects to the database by
// PGHOST, PGDATABASE and the like, and to the gateway at FENCEGATE_URL.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/lib/pq"

	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/sqlguard"
)

func main() {
	log.SetFlags(0)
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	db, err := sql.Open("postgres", "")
	if err != nil {
		return err
	}
	defer db.Close()
	client, err := lockclient.New(os.Getenv("FENCEGATE_URL"))
	if err != nil {
		return err
	}
	defer client.Close()

	const lock = "accounts/7"
	workerA, err := client.Acquire(ctx, lock, lockclient.WithLeaseOwner("worker-a"), lockclient.WithTTL(time.Second),
		lockclient.WithoutHeartbeat())
	if err != nil {
		return err
	}
	if err := withdraw(ctx, db, workerA); err != nil {
		return err
	}

	fmt.Println("worker-a is frozen, and its lease expires")
	workerB, err := client.Acquire(ctx, lock, lockclient.WithLeaseOwner("worker-b"), lockclient.WithWait(time.Minute))
	if err != nil {
		return err
	}
	defer workerB.ReleaseOnce()

	fmt.Println("worker-a wakes up")
	if err := withdraw(ctx, db, workerA); !errors.Is(err, lockclient.ErrNotHolder) {
		return fmt.Errorf("the zombie's write returned %w", err)
	} else if pqErr, ok := errors.AsType[*pq.Error](err); ok {
		fmt.Printf("rejected: %s: %s\n", pqErr.Code, pqErr.Message)
	}
	return withdraw(ctx, db, workerB)
}

func withdraw(ctx context.Context, db *sql.DB, lease *lockclient.Lease) error {
	var balance int
	err := sqlguard.InTx(ctx, db, lease, func(tx *sql.Tx) error {
		return tx.QueryRowContext(ctx,
			"update accounts set balance = balance - 10 where id = 7 returning balance").Scan(&balance)
	})
	if err == nil {
		fmt.Printf("%s: the balance is %d\n", lease.Owner(), balance)
	}
	return err
}
