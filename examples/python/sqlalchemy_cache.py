"""A lost update under a valid token, by the identity map of SQLAlchemy's session, and a read past it. It connects by
PGHOST, PGDATABASE and the other variables of libpq."""

import time

from sqlalchemy import BigInteger, Column, Integer, create_engine, text
from sqlalchemy.orm import Session, declarative_base

Base = declarative_base()
LOCK = "accounts/11"


class Account(Base):
    __tablename__ = "accounts"
    id = Column(BigInteger, primary_key=True)
    balance = Column(Integer)


def acquire(owner_id):
    """Waits for the lock, and returns the lease."""
    while True:
        with engine.begin() as conn:
            lease = conn.execute(text("select * from fence.acquire(:lock, :owner)"),
                                 {"lock": LOCK, "owner": owner_id}).one()
        if lease.status == "granted":
            return lease
        time.sleep(lease.recommended_retry_ms / 1000)


def withdraw(owner_id, session, **read):
    """Waits for the lock, withdraws 10 in the running transaction of the session, and releases the lock."""
    lease = acquire(owner_id)
    session.execute(text("select fence.guard(:lock, :token, 1)"), {"lock": LOCK, "token": lease.fencing_token})
    account = session.get(Account, 11, **read)
    before = account.balance
    account.balance -= 10
    session.commit()
    session.execute(text("select fence.release(:lock, :owner, :lease_id, :token)"), {
        "lock": LOCK, "owner": owner_id, "lease_id": lease.lease_id, "token": lease.fencing_token})
    session.commit()
    print(f"{owner_id}: read {before}, wrote {before - 10}")


engine = create_engine("postgresql+psycopg2://")
with Session(engine) as session, Session(engine) as another:
    account = session.get(Account, 11)  # the session keeps it until its transaction ends
    withdraw("worker-b", another)
    withdraw("worker-a, from the cache", session)
    account = session.get(Account, 11)
    withdraw("worker-b", another)
    withdraw("worker-a, afresh", session, populate_existing=True)  # or session.expire_all() after the guard
