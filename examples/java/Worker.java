import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.sql.Connection;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.Duration;
import java.util.Objects;
import org.postgresql.ds.PGSimpleDataSource;
import org.postgresql.util.PSQLException;

/**
 * A worker that may be frozen: java Worker OWNER. It waits for its lock. Then it withdraws 10 whenever Enter is pressed,
 * until the input ends or a transaction is rejected. It connects by JDBC_URL.
 */
public final class Worker {
    public static void main(String[] args) throws Exception {
        PGSimpleDataSource dataSource = new PGSimpleDataSource(); // or a pool, such as HikariCP's
        dataSource.setUrl(Objects.requireNonNull(System.getenv("JDBC_URL"), "JDBC_URL is not set"));
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));

        try (Lease lease = Lease.acquire(dataSource, "accounts/12", args[0], Duration.ofSeconds(2)).keepAlive()) {
            while (input.readLine() != null) {
                int balance = lease.transaction(Worker::withdraw);
                System.out.println(args[0] + ": the balance is " + balance);
            }
        } catch (PSQLException e) {
            if (!"LF103".equals(e.getSQLState())) {
                throw e;
            }
            System.out.println("rejected: LF103: " + e.getServerErrorMessage().getMessage());
        }
    }

    private static int withdraw(Connection db) throws SQLException {
        try (Statement statement = db.createStatement();
                ResultSet row = statement.executeQuery(
                        "update accounts set balance = balance - 10 where id = 12 returning balance")) {
            row.next();
            return row.getInt(1);
        }
    }
}
