import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import javax.sql.DataSource;

/**
 * A lease on a lock. PostgreSQL rejects its transactions with the SQLSTATE LF103 once a newer lease was granted. It needs
 * JDBC alone: copy it into your program. Renewals take a second connection of the DataSource.
 */
public final class Lease implements AutoCloseable {
    /** The statements of a transaction. They may run more than once: without effects outside of the database. */
    public interface Work<T> {
        T run(Connection db) throws SQLException;
    }

    private static final int ATTEMPTS_MAX = 10;
    private static final Duration PAUSE = Duration.ofMillis(500);

    private static final ScheduledExecutorService RENEWALS = Executors.newSingleThreadScheduledExecutor(task -> {
        Thread thread = new Thread(task, "fencegate renewals");
        thread.setDaemon(true);
        return thread;
    });

    private final DataSource dataSource;
    private final String lock;
    private final String owner;
    private final UUID leaseId;
    private final long token;
    private final Duration ttl;
    private long sequence;
    private ScheduledFuture<?> renewals;
    private volatile boolean held = true;
    private volatile long heldUntil; // by System.nanoTime

    private Lease(DataSource dataSource, String lock, String owner, Duration ttl, long asked, Map<String, Object> granted) {
        this.dataSource = dataSource;
        this.lock = lock;
        this.owner = owner;
        this.ttl = ttl;
        this.leaseId = (UUID) granted.get("lease_id");
        this.token = (Long) granted.get("fencing_token");
        this.heldUntil = asked + ttl.toNanos();
    }

    /** Waits for the lock. */
    public static Lease acquire(DataSource dataSource, String lock, String owner, Duration ttl)
            throws SQLException, InterruptedException {
        String request = UUID.randomUUID().toString(); // sent again after a lost answer, it returns the same lease
        boolean answered = false;
        for (;;) {
            long asked = System.nanoTime(), pause = PAUSE.toMillis();
            try {
                Map<String, Object> answer = ask(dataSource, lock, owner, ttl, request);
                if (answer.get("status").equals("granted")) {
                    return new Lease(dataSource, lock, owner, ttl, asked, answer);
                }
                if (answer.get("status").equals("lost")) { // it was granted, and has expired before this answer
                    request = UUID.randomUUID().toString();
                    continue;
                }
                pause = (Long) answer.get("recommended_retry_ms");
                answered = true;
            } catch (SQLException e) {
                if (!isUnanswered(e) || !answered && "08001".equals(e.getSQLState())) { // never connected: a wrong URL
                    throw e;
                }
            }
            Thread.sleep(pause);
        }
    }

    /** Takes the lock if it is free. */
    public static Optional<Lease> tryAcquire(DataSource dataSource, String lock, String owner, Duration ttl)
            throws SQLException {
        long asked = System.nanoTime();
        Map<String, Object> answer = ask(dataSource, lock, owner, ttl, UUID.randomUUID().toString());
        return answer.get("status").equals("granted")
                ? Optional.of(new Lease(dataSource, lock, owner, ttl, asked, answer)) : Optional.empty();
    }

    private static Map<String, Object> ask(DataSource dataSource, String lock, String owner, Duration ttl, String request)
            throws SQLException {
        return call(dataSource, "select * from fence.acquire(?, ?, ?, request_id => ?)",
                lock, owner, (int) ttl.toMillis(), request);
    }

    /** Renews the lease in the background, until it is closed or lost. */
    public Lease keepAlive() {
        long period = ttl.toMillis() / 3;
        renewals = RENEWALS.scheduleWithFixedDelay(() -> {
            try {
                if (!renew(ttl)) {
                    renewals.cancel(false);
                }
            } catch (SQLException e) {
                System.err.println(lock + " was not renewed: " + e.getMessage()); // the next one may succeed
            }
        }, period, period, TimeUnit.MILLISECONDS);
        return this;
    }

    /** Renews the lease, and returns false if it is lost. */
    public boolean renew(Duration ttl) throws SQLException {
        long asked = System.nanoTime();
        held = call(dataSource, "select status from fence.renew(?, ?, ?, ?, ?)",
                lock, owner, leaseId, token, (int) ttl.toMillis()).get("status").equals("renewed");
        heldUntil = asked + ttl.toNanos();
        return held;
    }

    /** Says that work outside of the database must stop. A transaction needs no such check: the fence rejects it. */
    public boolean isLost() {
        return !held || System.nanoTime() - heldUntil > 0;
    }

    /**
     * Runs the work in a transaction under this lease, and commits it, once.
     *
     * <p>If COMMIT gets no answer, this sends the transaction again, with its number and its digest: fence.guard returns
     * false if it was committed. The guard waits until the first one has ended.
     *
     * @throws SQLException with the SQLSTATE LF103, and nothing was committed: the lease is lost, stop. With the
     *     SQLSTATE 08007 its outcome is unknown: a newer holder has written since, or the database did not come back
     */
    public synchronized <T> T transaction(Work<T> work) throws SQLException, InterruptedException {
        byte[] digest = UUID.randomUUID().toString().getBytes(StandardCharsets.UTF_8);
        SQLException unanswered = null;
        T result = null;
        sequence++;
        for (int attempt = 1;; attempt++) {
            boolean committing = false;
            try (Connection db = dataSource.getConnection()) {
                db.setAutoCommit(false);
                try {
                    if ((Boolean) row(db, "select fence.guard(?, ?, ?, null, ?) as admitted", lock, token, sequence, digest)
                            .get("admitted")) {
                        result = work.run(db);
                    }
                    committing = true;
                    db.commit();
                    return result;
                } catch (SQLException | RuntimeException | Error e) {
                    rollback(db, e);
                    throw e;
                }
            } catch (SQLException e) {
                if (committing && isUnanswered(e)) {
                    unanswered = e;
                }
                if (attempt == ATTEMPTS_MAX || !isUnanswered(e) && !isRolledBack(e)) {
                    throw unanswered == null ? e : new SQLException("COMMIT got no answer: " + e.getMessage(), "08007", e);
                }
            }
            Thread.sleep(PAUSE.toMillis());
        }
    }

    /** Ends the renewals and releases the lock. */
    @Override
    public void close() throws SQLException {
        if (renewals != null) {
            renewals.cancel(false);
        }
        held = false;
        call(dataSource, "select status from fence.release(?, ?, ?, ?)", lock, owner, leaseId, token);
    }

    /** Says that the connection is lost, or the server. A COMMIT with such an error may have been made. */
    private static boolean isUnanswered(SQLException e) {
        String state = String.valueOf(e.getSQLState());
        return state.startsWith("08") || state.startsWith("57P0") || state.startsWith("58") || state.equals("25P04");
    }

    private static boolean isRolledBack(SQLException e) {
        return "40001".equals(e.getSQLState()) || "40P01".equals(e.getSQLState());
    }

    private static void rollback(Connection db, Throwable cause) {
        try {
            db.rollback();
        } catch (SQLException e) {
            cause.addSuppressed(e);
        }
    }

    /** Calls a function in a transaction of its own, also where the pool turns autocommit off. */
    private static Map<String, Object> call(DataSource dataSource, String sql, Object... values) throws SQLException {
        try (Connection db = dataSource.getConnection()) {
            db.setAutoCommit(true);
            return row(db, sql, values);
        }
    }

    private static Map<String, Object> row(Connection db, String sql, Object... values) throws SQLException {
        try (PreparedStatement statement = db.prepareStatement(sql)) {
            for (int i = 0; i < values.length; i++) {
                statement.setObject(i + 1, values[i]);
            }
            try (ResultSet rows = statement.executeQuery()) {
                rows.next();
                Map<String, Object> row = new HashMap<>();
                for (int i = 1; i <= rows.getMetaData().getColumnCount(); i++) {
                    row.put(rows.getMetaData().getColumnLabel(i), rows.getObject(i));
                }
                return row;
            }
        }
    }
}
