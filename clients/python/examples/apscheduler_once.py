"""A job of APScheduler that runs once, although the schedulers of many machines start it.

Two schedulers in one process stand for two machines here. Needs APScheduler 3."""

import os
import threading
from datetime import datetime, timedelta, timezone

import fencegate
from apscheduler.schedulers.background import BackgroundScheduler

URL = os.environ.get("FENCEGATE_URL", "http://127.0.0.1:8080")
ended = threading.Barrier(3)


def once(client, name, work):
    """Makes a job of work that runs once for each time of the schedule: the record of that time says that it is done.
    Its write is fenced, so a machine that was frozen in the middle can't claim the time later."""

    def job(time):
        try:
            with client.lock(name) as lease:
                try:
                    client.get(name, time)
                    print("it is done already")
                except fencegate.NotFound:
                    work(lease)
                    lease.put(time, client.owner, if_absent=True)
        finally:
            ended.wait()

    return job


def report(lease):
    lease.put("report", "all is well")  # refused if another machine has taken over
    print("the report is written")


at = datetime.now(timezone.utc) + timedelta(seconds=1)
schedulers = []
for machine in ("a", "b"):
    client = fencegate.Client(URL, owner=f"machine-{machine}")
    scheduler = BackgroundScheduler(timezone=timezone.utc)
    scheduler.add_job(once(client, "python/reports", report), "date", run_date=at, args=[at.isoformat()])
    scheduler.start()
    schedulers.append(scheduler)
ended.wait()
for scheduler in schedulers:
    scheduler.shutdown()
