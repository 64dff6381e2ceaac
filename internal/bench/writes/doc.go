// Package writes measures fenced writes beside direct, unfenced ones: same server, same run, same values, in turn. The
// figures to quote are the ratios of a round, for the machine's speed drifts between rounds.
//
// This process is the load. PostgreSQL, the gateway, the empty handler and the peers are processes of their own.
//
//	direct          an upsert by pgx from a pool, one statement, autocommit, no fence: what one would do without fencegate
//	handmade        the fence as one writes it by hand: begin, select for update, check, update, upsert, commit
//	store           the same write through package store, in this process, committed together with other clients'
//	store-unfenced  the same batches without a fence: one set-based upsert
//	http            the same write through a gateway, one request each, over keep-alive connections
//	ndjson          the same writes through a gateway, 100 to a request
//	ndjson-stream   the same, in one request that lasts
//	refused         writes of zombies through a gateway: each is refused
//	floor           the http target's requests to an empty handler: what HTTP costs on this machine
//	etcd            a transaction: compare the lock key's revision, put
//	zookeeper       a multi: check the lock node's version, set the data
//	redis, redis-everysec
//	                a script: compare the token, set; with appendfsync always, and as it comes with an append-only file
//
// Every client writes to resources of its own, numbered, round and round; where there are fewer resources than clients,
// several clients share one: through the store, their writes are numbered and handed over in order, as a holder that
// does not wait for each write does; through HTTP they carry no number, under the policy same_token, as requests over
// several connections have no order.
package writes
