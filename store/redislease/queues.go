package redislease

import (
	"container/list"
	"sync"

	"github.com/fencegate/fencegate/store"
)

// queues has the callers of this process that wait, first come, first served for each lock. Only the first of a lock
// asks the servers.
type queues struct {
	mu    sync.Mutex
	locks map[store.Name]*list.List // of *waiter
}

// waiter is a caller that waits for a lock.
type waiter struct {
	lock  store.Name
	at    *list.Element
	first chan struct{} // is closed when it is the first
	wake  chan struct{} // has one when the lock may be free
}

// join adds a caller.
func (q *queues) join(lock store.Name) *waiter {
	q.mu.Lock()
	defer q.mu.Unlock()
	waiting := q.locks[lock]
	if waiting == nil {
		waiting = list.New()
		q.locks[lock] = waiting
	}
	w := &waiter{lock: lock, first: make(chan struct{}), wake: make(chan struct{}, 1)}
	w.at = waiting.PushBack(w)
	if waiting.Len() == 1 {
		close(w.first)
	}
	return w
}

func (w *waiter) isFirst() bool {
	select {
	case <-w.first:
		return true
	default:
		return false
	}
}

// leave removes a caller, and makes the next one the first.
func (q *queues) leave(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	waiting := q.locks[w.lock]
	wasFirst := waiting.Front() == w.at
	waiting.Remove(w.at)
	switch {
	case waiting.Len() == 0:
		delete(q.locks, w.lock)
	case wasFirst:
		close(waiting.Front().Value.(*waiter).first)
	}
}

// woken makes the first waiter of a lock try at once.
func (q *queues) woken(lock store.Name) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if waiting := q.locks[lock]; waiting != nil {
		wakeFirst(waiting)
	}
}

// allWoken makes the first waiter of each lock try at once.
func (q *queues) allWoken() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, waiting := range q.locks {
		wakeFirst(waiting)
	}
}

func wakeFirst(waiting *list.List) {
	select {
	case waiting.Front().Value.(*waiter).wake <- struct{}{}:
	default: // it will try anyway
	}
}

// length returns how many wait for a lock.
func (q *queues) length(lock store.Name) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if waiting := q.locks[lock]; waiting != nil {
		return waiting.Len()
	}
	return 0
}

// all returns how many wait.
func (q *queues) all() (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, waiting := range q.locks {
		n += waiting.Len()
	}
	return n
}
