"""Of all Celery beats that run, the one that holds a lock sends the tasks; another takes over when it ends.

    celery --app your_app beat --scheduler celery_beat:FencedScheduler

With Django and django-celery-beat, derive the class from django_celery_beat.schedulers.DatabaseScheduler: then the beats
share the times of the last runs, too.

A beat that was frozen may still send the task that it is about to send. So let the task write under a lock of its own."""

import os

import fencegate
from celery.beat import PersistentScheduler

client = fencegate.Client(os.environ.get("FENCEGATE_URL", "http://127.0.0.1:8080"))


class FencedScheduler(PersistentScheduler):
    lease = None

    def tick(self, *args, **kwargs):
        if self.lease is None or not self.lease.valid:
            try:
                self.lease = client.acquire("celery/beat", ttl=15)
            except (fencegate.LockHeld, fencegate.Unavailable):
                return 2  # seconds until the next try
        return super().tick(*args, **kwargs)

    def close(self):
        super().close()
        if self.lease is not None:
            self.lease.release()
