package writes

import "context"

// target is what is measured.
type target struct {
	name string
	// tuned are numbers of connections, of which the measurement finds the best for each number of clients; nil: the
	// target has no such choice.
	tuned []int
	// perRequest is how many writes a client makes at once; 0 is 1.
	perRequest int
	// pids are the processes that do the work, beside PostgreSQL's, and what they are called in the report; nil: there are
	// none here.
	role   string
	pids   []int
	beside []string     // base URLs of further servers, which clients take turns between
	access clientAccess // what the clients need
	// open makes ready for so many clients.
	open func(ctx context.Context, s setting) (session, error)
	stop func() error
}

// setting is what a session is opened for.
type setting struct {
	layout      layout
	clients     int
	connections int
	valueBytes  int
}

func (s setting) shared() bool { return s.layout.shared(s.clients) }

// session is a target in use. Its write is called by all clients at the same time, by each for one write (perRequest of
// them) after the other, with the client's own writer.
type session struct {
	write writeFunc
	close func() error
}

type writeFunc func(ctx context.Context, client int, w *writer) error

// The names of the targets.
const (
	nameDirect        = "direct"
	nameHandmade      = "handmade"
	nameStore         = "store"
	nameStoreUnfenced = "store-unfenced"
	nameHTTP          = "http"
	nameHTTPPooled    = "http-pooled"
	nameHTTPKey       = "http-key"
	nameHTTPTLS       = "http-tls"
	nameNDJSON        = "ndjson"
	nameNDJSONStream  = "ndjson-stream"
	nameFloor         = "floor"
	nameRefused       = "refused"
	nameEtcd          = "etcd"
	nameZooKeeper     = "zookeeper"
	nameRedis         = "redis"
	nameRedisEverysec = "redis-everysec"
)

// TargetNames are the valid values of --targets.
func TargetNames() []string {
	return []string{
		nameDirect, nameHandmade, nameStore, nameStoreUnfenced, nameHTTP, nameHTTPPooled, nameHTTPKey, nameHTTPTLS,
		nameNDJSON, nameNDJSONStream, nameFloor, nameEtcd, nameZooKeeper, nameRedis, nameRedisEverysec,
	}
}
