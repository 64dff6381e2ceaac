// Command gorm shows a fenced change by GORM, and a zombie. It connects to the database by PGHOST, PGDATABASE and the
// like, and to the gateway at FENCEGATE_URL.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/logger"

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
	db, err := gorm.Open(postgres.Open(""), &gorm.Config{Logger: logger.Discard})
	if err != nil {
		return err
	}
	client, err := lockclient.New(os.Getenv("FENCEGATE_URL"))
	if err != nil {
		return err
	}
	defer client.Close()

	const lock = "accounts/8"
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
	} else if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		fmt.Printf("rejected: %s: %s\n", pgErr.Code, pgErr.Message)
	}
	return withdraw(ctx, db, workerB)
}

type account struct {
	ID      int64
	Balance int
}

func withdraw(ctx context.Context, db *gorm.DB, lease *lockclient.Lease) error {
	mine := account{ID: 8}
	err := db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		if err := sqlguard.Guard(ctx, tx.Statement.ConnPool, lease); err != nil { // a *sql.Tx
			return err
		}
		if err := tx.Clauses(clause.Locking{Strength: "UPDATE"}).Take(&mine).Error; err != nil {
			return err
		}
		mine.Balance -= 10
		return tx.Save(&mine).Error
	})
	if err == nil {
		fmt.Printf("%s: the balance is %d\n", lease.Owner(), mine.Balance)
	}
	return sqlguard.Error(err)
}
