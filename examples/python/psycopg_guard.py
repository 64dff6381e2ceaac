"""A fenced update by psycopg 3, and a zombie. It connects by PGHOST, PGDATABASE and the other variables of libpq."""

import time

import psycopg

LOCK = "accounts/2"


def acquire(conn, owner_id, ttl_ms):
    """Waits for the lock, and returns the fencing token of the lease."""
    while True:
        status, token, retry_ms = conn.execute(
            "select status, fencing_token, recommended_retry_ms from fence.acquire(%s, %s, %s)",
            (LOCK, owner_id, ttl_ms)).fetchone()
        if status == "granted":
            return token
        time.sleep(retry_ms / 1000)


def withdraw(conn, owner_id, token, sequence):
    with conn.transaction():
        conn.execute("select fence.guard(%s, %s, %s)", (LOCK, token, sequence))  # first, before any read
        row = conn.execute("update accounts set balance = balance - 10 where id = 2 returning balance").fetchone()
    print(f"{owner_id}: the balance is {row[0]}")


with psycopg.connect(autocommit=True) as conn:
    older = acquire(conn, "worker-a", ttl_ms=1000)
    withdraw(conn, "worker-a", older, sequence=1)

    print("worker-a is frozen, and its lease expires")
    newer = acquire(conn, "worker-b", ttl_ms=30000)

    print("worker-a wakes up")
    try:
        withdraw(conn, "worker-a", older, sequence=2)
        raise SystemExit("the zombie's write was accepted")
    except psycopg.DatabaseError as e:
        if e.sqlstate != "LF103":
            raise
        print(f"rejected: {e.sqlstate}: {e.diag.message_primary}")

    withdraw(conn, "worker-b", newer, sequence=1)
