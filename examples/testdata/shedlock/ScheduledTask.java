import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.sql.Statement;
import java.sql.ResultSet;
import java.time.Duration;
import java.time.Instant;
import java.util.Optional;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import org.postgresql.ds.PGSimpleDataSource;
import org.postgresql.util.PSQLException;

/** Worker as a task of ShedLock: it locks, runs and unlocks in the order of ShedLock's executor. */
public final class ScheduledTask {
    private static final Duration AT_MOST = Duration.ofSeconds(2);

    public static void main(String[] args) throws Exception {
        PGSimpleDataSource dataSource = new PGSimpleDataSource();
        dataSource.setUrl(System.getenv("JDBC_URL"));
        FencegateLockProvider provider = new FencegateLockProvider(dataSource, args[0]);

        LockConfiguration hour = new LockConfiguration(
                Instant.now(), "at-least/" + args[0], Duration.ofHours(1), Duration.ofHours(1));
        provider.lock(hour).orElseThrow().unlock();
        if (provider.lock(hour).isPresent()) {
            throw new IllegalStateException("unlock ended a lock before lockAtLeastFor");
        }

        Optional<SimpleLock> lock = Optional.empty();
        while (lock.isEmpty()) {
            lock = provider.lock(new LockConfiguration(Instant.now(), "accounts/13", AT_MOST, Duration.ZERO));
            Thread.sleep(20);
        }
        try {
            BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
            while (input.readLine() != null) {
                int balance = FencegateLockProvider.lease().transaction(db -> {
                    try (Statement statement = db.createStatement();
                            ResultSet row = statement.executeQuery(
                                    "update accounts set balance = balance - 10 where id = 13 returning balance")) {
                        row.next();
                        return row.getInt(1);
                    }
                });
                System.out.println(args[0] + ": the balance is " + balance);
                lock = lock.orElseThrow().extend(AT_MOST, Duration.ZERO);
            }
        } catch (PSQLException e) {
            System.out.println("rejected: " + e.getSQLState() + ": " + e.getServerErrorMessage().getMessage());
        } finally {
            lock.orElseThrow().unlock();
        }
    }
}
