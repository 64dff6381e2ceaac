# A lost update under a valid token, by the query cache of Rails, and a read past it. It connects by PGHOST, PGDATABASE
# and the other variables of libpq. In Rails the cache is on in each request, as it is here in the block of `cache`.

require "active_record"

LOCK = "accounts/9"
ActiveRecord::Base.establish_connection(adapter: "postgresql")

class Account < ActiveRecord::Base; end

# Calls a function of the schema fence, and returns its row. The query cache may answer.
def cached(function, *values)
  marks = (["?"] * values.size).join(", ")
  Account.connection.select_one(Account.sanitize_sql(["select * from fence.#{function}(#{marks})", *values]))
end

# Calls the function in any case.
def call(...) = Account.uncached { cached(...) }

# Waits for the lock, and returns the token and the id of the lease.
def acquire(owner_id, ttl_ms)
  loop do
    lease = call("acquire", LOCK, owner_id, ttl_ms)
    return lease.values_at("lease_id", "fencing_token") if lease["status"] == "granted"
    sleep lease["recommended_retry_ms"] / 1000.0
  end
end

# Waits for the lock, withdraws 10 from the account that the block reads, and releases the lock.
def withdraw(owner_id)
  lease_id, token = acquire(owner_id, 30_000)
  Account.transaction do
    call("guard", LOCK, token, 1)
    account = yield
    before = account.balance
    account.update!(balance: before - 10)
    puts "#{owner_id}: read #{before}, wrote #{account.balance}"
  end
  call("release", LOCK, owner_id, lease_id, token)
end

def locked = Account.lock.find(9) # or Account.uncached { Account.find(9) }

# Another process does that, with a connection of its own.
def another_withdraws = Thread.new { Account.connection_pool.with_connection { withdraw("worker-b") { locked } } }.join

Account.connection # without one, cache has no effect
Account.cache do
  Account.find(9)
  another_withdraws
  withdraw("worker-a, from the cache") { Account.find(9) }
  Account.find(9)
  another_withdraws
  withdraw("worker-a, afresh") { locked }

  lease = acquire("worker-a", 2_000)
  puts "worker-a: #{cached("renew", LOCK, "worker-a", *lease)["status"]}"
  another_withdraws # when the lease has expired
  puts "worker-a, from the cache: #{cached("renew", LOCK, "worker-a", *lease)["status"]}"
  puts "worker-a, afresh: #{call("renew", LOCK, "worker-a", *lease)["status"]}"
end
