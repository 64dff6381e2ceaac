package net.javacrumbs.shedlock.core;

import java.time.Duration;
import java.util.Optional;

/** A stand-in for the tests, as LockProvider is. */
public interface SimpleLock {
    void unlock();

    default Optional<SimpleLock> extend(Duration lockAtMostFor, Duration lockAtLeastFor) {
        throw new UnsupportedOperationException();
    }
}
