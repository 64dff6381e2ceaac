"""A fenced change by SQLAlchemy's ORM, and a zombie. It connects by PGHOST, PGDATABASE and the other variables of
libpq. The ORM's own code stays as it is: an event numbers each transaction and sets the token for it."""

import itertools
import time

from sqlalchemy import BigInteger, Column, Integer, create_engine, event, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session, declarative_base

Base = declarative_base()
LOCK = "accounts/3"


class Account(Base):
    __tablename__ = "accounts"
    id = Column(BigInteger, primary_key=True)
    balance = Column(Integer)


def acquire(owner_id, ttl_ms):
    """Waits for the lock, and returns the fencing token of the lease."""
    while True:
        with engine.begin() as conn:
            lease = conn.execute(text("select * from fence.acquire(:lock, :owner_id, :ttl_ms)"),
                                 {"lock": LOCK, "owner_id": owner_id, "ttl_ms": ttl_ms}).one()
        if lease.status == "granted":
            return lease.fencing_token
        time.sleep(lease.recommended_retry_ms / 1000)


def fenced_session(token):
    """Returns a session whose transactions are numbered, and fenced by the token."""
    session = Session(engine)
    sequence = itertools.count(1)

    @event.listens_for(session, "after_begin")
    def set_token(_session, _transaction, conn):
        conn.execute(text("select fence.set_token(:token, :sequence)"), {"token": token, "sequence": next(sequence)})

    return session


def withdraw(session, owner_id):
    with session.begin():
        account = session.get(Account, 3, with_for_update=True, populate_existing=True)
        account.balance -= 10
        balance = account.balance
    print(f"{owner_id}: the balance is {balance}")


engine = create_engine("postgresql+psycopg2://")
worker_a = fenced_session(acquire("worker-a", ttl_ms=1000))
withdraw(worker_a, "worker-a")

print("worker-a is frozen, and its lease expires")
worker_b = fenced_session(acquire("worker-b", ttl_ms=30000))

print("worker-a wakes up")
try:
    withdraw(worker_a, "worker-a")
    raise SystemExit("the zombie's write was accepted")
except DBAPIError as e:
    if e.orig.pgcode != "LF103":
        raise
    print(f"rejected: {e.orig.pgcode}: {e.orig.diag.message_primary}")

withdraw(worker_b, "worker-b")
