"""A job of APScheduler that runs once a night, although the schedulers of many machines start it.

Two schedulers in one process stand for two machines here. Needs APScheduler 3."""

import os
import threading
from datetime import datetime, timedelta, timezone

import fencegate
from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED
from apscheduler.schedulers.background import BackgroundScheduler

URL = os.environ.get("FENCEGATE_URL", "http://127.0.0.1:8080")


def once(client, name, work, zone, hour):
    """Makes a job of work that runs once for each night of a daily schedule, at an hour of a time zone: the record of
    the night says that it is done. Its write is fenced, so a machine that was frozen in the middle can't claim the
    night later."""

    def job():
        # Before the wait for the lock. A night begins an hour before the schedule, by the clock on the wall.
        night = str((datetime.now(zone) - timedelta(hours=hour - 1)).date())
        with client.lock(name) as lease:
            try:
                client.get(name, night)
                print("it is done already")
            except fencegate.NotFound:
                work(lease)
                lease.put(night, client.owner, if_absent=True)

    return job


def report(lease):
    lease.put("report", "all is well")  # refused if another machine has taken over
    print("the report is written")


if __name__ == "__main__":
    at = datetime.now(timezone.utc) + timedelta(seconds=1)
    ended = threading.Barrier(3)
    schedulers = []
    for machine in ("a", "b"):
        client = fencegate.Client(URL, owner=f"machine-{machine}")
        scheduler = BackgroundScheduler(timezone=timezone.utc)
        scheduler.add_listener(lambda event: ended.wait(), EVENT_JOB_EXECUTED | EVENT_JOB_ERROR)
        scheduler.add_job(once(client, "python/reports", report, timezone.utc, at.hour), "date", run_date=at)
        scheduler.start()
        schedulers.append(scheduler)
    ended.wait()
    for scheduler in schedulers:
        scheduler.shutdown()
