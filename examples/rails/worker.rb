# A worker on ActiveRecord that may be frozen: ruby examples/rails/worker.rb OWNER. It waits for its lock. Then it withdraws
# 10 whenever Enter is pressed, until the input ends or a transaction is rejected. It connects by PGHOST, PGDATABASE and
# the other variables of libpq.

require "active_record"

ActiveRecord::Base.establish_connection(adapter: "postgresql")

class Account < ActiveRecord::Base; end

# A lease on a lock, which a thread renews, and which numbers its transactions. Call it outside of transactions.
class Lease
  def initialize(lock, owner, ttl_ms)
    @lock, @owner, @number, @ended = lock, owner, 0, Queue.new
    until (granted = sql("acquire", lock, owner, ttl_ms))["status"] == "granted"
      sleep granted["recommended_retry_ms"] / 1000.0
    end
    @id, @token = granted.values_at("lease_id", "fencing_token")
    @renewals = Thread.new { renew(ttl_ms / 3000.0) }
  end

  # A transaction that PostgreSQL rejects with LF103 once a newer lease was granted.
  def transaction
    ActiveRecord::Base.transaction do
      sql("guard", @lock, @token, @number += 1)
      yield
    end
  end

  def release
    @ended << true
    @renewals.join
    sql("release", @lock, @owner, @id, @token)
  end

  private

  # Calls a function of the schema fence past the query cache, and returns its row.
  def sql(function, *values)
    marks = (["?"] * values.size).join(", ")
    query = ActiveRecord::Base.sanitize_sql(["select * from fence.#{function}(#{marks})", *values])
    ActiveRecord::Base.connection_pool.with_connection { |db| db.uncached { db.select_one(query) } }
  end

  # Renews the lease until it ends, by a second connection of the pool.
  def renew(period)
    loop do
      sleep period
      break if !@ended.empty? || sql("renew", @lock, @owner, @id, @token)["status"] != "renewed"
    rescue ActiveRecord::ActiveRecordError => e # the next one may succeed
      warn "not renewed: #{e.message}"
    end
  end
end

def withdraw(lease)
  lease.transaction do
    account = Account.lock.find(15) # read after the guard, and past the query cache
    account.update!(balance: account.balance - 10)
    account.balance
  end
end

$stdout.sync = true
owner = ARGV.fetch(0)
lease = Lease.new("accounts/15", owner, 2000)
begin
  puts "#{owner}: the balance is #{withdraw(lease)}" while $stdin.gets
rescue ActiveRecord::StatementInvalid => e
  rejection = e.cause.result
  raise if rejection.error_field(PG::PG_DIAG_SQLSTATE) != "LF103"
  puts "rejected: LF103: #{rejection.error_field(PG::PG_DIAG_MESSAGE_PRIMARY)}"
end
lease.release
