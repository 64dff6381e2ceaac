package net.javacrumbs.shedlock.core;

import java.util.Optional;

/** A stand-in for the tests: it has the signatures of ShedLock 7.9, whose library is not installed. */
public interface LockProvider {
    Optional<SimpleLock> lock(LockConfiguration lockConfiguration);
}
