"""A worker on Django's ORM that may be frozen: python3 examples/django/worker.py OWNER. It waits for its lock. Then it
withdraws 10 whenever Enter is pressed, until the input ends or a transaction is rejected. It connects by PGHOST,
PGDATABASE and the other variables of libpq."""

import contextlib
import itertools
import os
import sys
import threading
import time

import django
from django.conf import settings

settings.configure(DATABASES={
    "default": {"ENGINE": "django.db.backends.postgresql", "NAME": os.environ["PGDATABASE"]}})
django.setup()

from django.db import DatabaseError, connection, models, transaction  # noqa: E402: after the settings


class Account(models.Model):
    balance = models.IntegerField()

    class Meta:
        app_label = "examples"
        db_table = "accounts"


def sql(function, *values):
    """Calls a function of the schema fence, and returns its row."""
    with connection.cursor() as cursor:
        cursor.execute(f"select * from fence.{function}({', '.join(['%s'] * len(values))})", values)
        return dict(zip((column[0] for column in cursor.description), cursor.fetchone()))


class Lease:
    """A lease on a lock, which a thread renews, and which numbers its transactions. Call it outside of transactions."""

    def __init__(self, lock, owner, ttl_ms):
        while (granted := sql("acquire", lock, owner, ttl_ms))["status"] != "granted":
            time.sleep(granted["recommended_retry_ms"] / 1000)
        self.lock, self.token, self.numbers = lock, granted["fencing_token"], itertools.count(1)
        self.key = (lock, owner, granted["lease_id"], self.token)
        self.ended = threading.Event()
        self.renewals = threading.Thread(target=self.renew, args=(ttl_ms / 3000,), daemon=True)
        self.renewals.start()

    @contextlib.contextmanager
    def transaction(self):
        """A transaction that PostgreSQL rejects with LF103 once a newer lease was granted."""
        with transaction.atomic(durable=True):  # durable: not a part of another one
            sql("guard", self.lock, self.token, next(self.numbers))
            yield

    def renew(self, period):
        """Renews the lease until it ends. Django gives each thread a connection of its own."""
        while not self.ended.wait(period):
            try:
                if sql("renew", *self.key)["status"] != "renewed":
                    break
            except DatabaseError as e:  # the next one may succeed
                print(f"not renewed: {e}", file=sys.stderr)
                connection.close()
        connection.close()

    def release(self):
        self.ended.set()
        self.renewals.join()
        sql("release", *self.key)


def withdraw(lease):
    with lease.transaction():
        account = Account.objects.select_for_update().get(id=14)  # read after the guard
        account.balance -= 10
        account.save()
    return account.balance


lease = Lease("accounts/14", owner=sys.argv[1], ttl_ms=2000)
try:
    for _ in sys.stdin:
        print(f"{sys.argv[1]}: the balance is {withdraw(lease)}", flush=True)
except DatabaseError as e:
    rejection = e.__cause__.diag
    if rejection.sqlstate != "LF103":
        raise
    print(f"rejected: {rejection.sqlstate}: {rejection.message_primary}")
lease.release()
