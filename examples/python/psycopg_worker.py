"""A worker that claims jobs, by psycopg 3. It connects by PGHOST, PGDATABASE and the other variables of libpq.

It ends when there is no job left. One that runs on waits here, for a second or a notification. An error ends it, too:
its leases expire, and another worker takes its jobs.
"""

import os
import socket
import threading

import psycopg

OWNER = f"{socket.gethostname()}-{os.getpid()}"
TTL_MS = 10000


def work(job, lost):
    """Does the job, and stops when lost is set."""
    if job["seconds"] < 0:
        raise ValueError("less than no time")
    lost.wait(job["seconds"])


def renew(lease_id, lost, ended):
    """Renews the leases of a claim together, and sets the event of each job that is lost."""
    while not ended.wait(TTL_MS / 3000):
        try:
            with psycopg.connect(autocommit=True) as conn:
                rows = conn.execute("select resource from fence.renew_claim(%s, %s)", (OWNER, lease_id)).fetchall()
        except psycopg.Error as e:  # the next one may succeed
            print(f"not renewed: {e}")
            continue
        for resource in lost.keys() - {resource for resource, in rows}:  # also those that are completed
            lost[resource].set()


def complete(conn, resource, lease_id, token, update, job_id):
    """Returns whether the job was still this worker's. If not, another worker does it again."""
    try:
        with conn.transaction():
            conn.execute("select fence.guard(%s, %s, 1)", (resource, token))
            conn.execute(update, (job_id,))
            conn.execute("select fence.release(%s, %s, %s, %s)", (resource, OWNER, lease_id, token))
        return True
    except psycopg.DatabaseError as e:
        if e.sqlstate != "LF103":
            raise
        return False


with psycopg.connect(autocommit=True) as conn:
    while jobs := conn.execute(
            "select resource, lease_id, fencing_token, job "
            "from fence.claim('jobs', 10, %s, %s, 'not done and due <= now()')", (OWNER, TTL_MS)).fetchall():
        lost, ended = {resource: threading.Event() for resource, *_ in jobs}, threading.Event()
        renewals = threading.Thread(target=renew, args=(jobs[0][1], lost, ended), daemon=True)
        renewals.start()
        for resource, lease_id, token, job in jobs:
            outcome, update = "done", "update jobs set done = true where id = %s"
            try:
                work(job, lost[resource])
            except Exception as e:
                outcome = f"failed: {e}"
                update = "update jobs set attempts = attempts + 1, due = now() + interval '1 minute' where id = %s"
            if lost[resource].is_set() or not complete(conn, resource, lease_id, token, update, job["id"]):
                outcome = "lost"
            print(f"{resource}: {outcome}")
        ended.set()
        renewals.join()
