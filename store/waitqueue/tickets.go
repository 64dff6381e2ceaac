package waitqueue

import (
	"container/heap"
	"slices"
)

// endedMin is how many tickets that are over a ticketHeap keeps in any case.
const endedMin = 64

// ticketHeap keeps tickets in order, each once. It does not learn which are over: it drops those when they come first,
// or when they are most.
type ticketHeap struct {
	order  int64Heap
	queued map[int64]struct{}
}

// add takes in a ticket that is in use, one of used.
func (h *ticketHeap) add(ticket int64, inUse func(int64) bool, used int) {
	if _, there := h.queued[ticket]; there {
		return
	}
	if len(h.order) > endedMin+2*used { // a ticket that is first for long must not keep all that came and went behind it
		h.order = slices.DeleteFunc(h.order, func(ticket int64) bool { return !inUse(ticket) })
		heap.Init(&h.order)
		h.queued = map[int64]struct{}{}
		for _, ticket := range h.order {
			h.queued[ticket] = struct{}{}
		}
	}
	if h.queued == nil {
		h.queued = map[int64]struct{}{}
	}
	h.queued[ticket] = struct{}{}
	heap.Push(&h.order, ticket)
}

// first returns the lowest ticket that is in use, or 0.
func (h *ticketHeap) first(inUse func(int64) bool) int64 {
	for len(h.order) > 0 && !inUse(h.order[0]) {
		delete(h.queued, h.order[0])
		heap.Pop(&h.order)
	}
	if len(h.order) == 0 {
		return 0
	}
	return h.order[0]
}

// int64Heap is a heap.Interface.
type int64Heap []int64

func (h int64Heap) Len() int           { return len(h) }
func (h int64Heap) Less(i, j int) bool { return h[i] < h[j] }
func (h int64Heap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *int64Heap) Push(x any)        { *h = append(*h, x.(int64)) }
func (h *int64Heap) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	*h = (*h)[:last]
	return x
}
