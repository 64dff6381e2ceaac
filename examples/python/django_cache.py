"""A lost update under a valid token, by an instance of Django's ORM that was read before the guard, and a read after
it. It connects by PGHOST, PGDATABASE and the other variables of libpq."""

import os
import time

import django
from django.conf import settings

settings.configure(DATABASES={
    "default": {"ENGINE": "django.db.backends.postgresql", "NAME": os.environ["PGDATABASE"]}})
django.setup()

from django.db import connections, models, transaction  # noqa: E402: after the settings

LOCK = "accounts/10"


class Account(models.Model):
    balance = models.IntegerField()

    class Meta:
        app_label = "examples"
        db_table = "accounts"


def sql(function, *values):
    """Calls a function of the schema fence, and returns its row."""
    with connections["default"].cursor() as cursor:
        cursor.execute(f"select * from fence.{function}({', '.join(['%s'] * len(values))})", values)
        return dict(zip((column.name for column in cursor.description), cursor.fetchone()))


def withdraw(owner_id, read):
    """Waits for the lock, withdraws 10, and releases the lock."""
    while (lease := sql("acquire", LOCK, owner_id))["status"] != "granted":
        time.sleep(lease["recommended_retry_ms"] / 1000)
    with transaction.atomic():
        sql("guard", LOCK, lease["fencing_token"], 1)
        account = read()
        before = account.balance
        account.balance -= 10
        account.save()
    sql("release", LOCK, owner_id, lease["lease_id"], lease["fencing_token"])
    print(f"{owner_id}: read {before}, wrote {account.balance}")


def locked():
    return Account.objects.select_for_update().get(id=10)


account = Account.objects.get(id=10)
withdraw("worker-b", locked)
withdraw("worker-a, from the cache", lambda: account)
withdraw("worker-b", locked)
withdraw("worker-a, afresh", locked)  # or account.refresh_from_db() after the guard
