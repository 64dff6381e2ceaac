import java.sql.SQLException;
import java.time.Duration;
import java.util.Optional;
import javax.sql.DataSource;
import net.javacrumbs.shedlock.core.ExtensibleLockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;

/**
 * Locks of ShedLock as leases of fencegate. A task writes by lease().transaction(…): PostgreSQL rejects it with the
 * SQLSTATE LF103 if it ran for longer than lockAtMostFor, and another node has started since. The name of the lock is the
 * name of the resource, such as accounts/42. KeepAliveLockProvider renews the leases.
 */
public final class FencegateLockProvider implements ExtensibleLockProvider {
    private static final ThreadLocal<Lease> LEASE = new ThreadLocal<>();
    private static final Duration TTL_MIN = Duration.ofMillis(100);

    private final DataSource dataSource;
    private final String owner;

    /** The owner names this process, such as its host and its process id. */
    public FencegateLockProvider(DataSource dataSource, String owner) {
        this.dataSource = dataSource;
        this.owner = owner;
    }

    /** Returns the lease of the task that runs on this thread. */
    public static Lease lease() {
        if (LEASE.get() == null) {
            throw new IllegalStateException("no task with a lock runs on this thread");
        }
        return LEASE.get();
    }

    @Override
    public Optional<SimpleLock> lock(LockConfiguration lock) {
        try {
            Optional<Lease> lease = Lease.tryAcquire(dataSource, lock.getName(), owner, lock.getLockAtMostFor());
            lease.ifPresent(LEASE::set);
            return lease.map(granted -> new Held(granted, System.nanoTime() + lock.getLockAtLeastFor().toNanos()));
        } catch (SQLException e) {
            throw new IllegalStateException("acquire " + lock.getName(), e);
        }
    }

    private record Held(Lease lease, long atLeastUntil) implements SimpleLock {
        @Override
        public void unlock() {
            LEASE.remove();
            Duration rest = Duration.ofNanos(atLeastUntil - System.nanoTime());
            try {
                if (rest.compareTo(TTL_MIN) < 0) {
                    lease.close();
                } else {
                    lease.renew(rest); // it expires then
                }
            } catch (SQLException e) {
                throw new IllegalStateException("release", e);
            }
        }

        @Override
        public Optional<SimpleLock> extend(Duration lockAtMostFor, Duration lockAtLeastFor) {
            try {
                return lease.renew(lockAtMostFor)
                        ? Optional.of(new Held(lease, System.nanoTime() + lockAtLeastFor.toNanos())) : Optional.empty();
            } catch (SQLException e) {
                throw new IllegalStateException("renew", e);
            }
        }
    }
}
