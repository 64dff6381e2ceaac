package lockclient

import "sync"

// newestTokensMax bounds the names whose tokens a client remembers.
const newestTokensMax = 10_000

// newestTokens are the greatest fencing tokens that the client was granted, by name. It sends them with acquires: a
// gateway whose database went back to an older state, and does not know of it, finds out by them.
type newestTokens struct {
	mu     sync.Mutex
	byName map[string]int64
}

func (n *newestTokens) of(name string) int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.byName[name]
}

func (n *newestTokens) note(name string, token int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.byName == nil {
		n.byName = map[string]int64{}
	}
	if _, known := n.byName[name]; !known && len(n.byName) >= newestTokensMax {
		for forgotten := range n.byName {
			delete(n.byName, forgotten)
			break
		}
	}
	n.byName[name] = max(n.byName[name], token)
}
