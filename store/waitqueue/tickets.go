package waitqueue

import "slices"

// endedMin is how many tickets that are over a ticketList keeps in any case.
const endedMin = 64

// ticketList keeps tickets in order, each once. It does not learn which are over: it drops those when they come first,
// or when they are most.
type ticketList []int64

// add takes in a ticket that is in use, one of used. New tickets are the greatest, so it mostly appends.
func (l *ticketList) add(ticket int64, inUse func(int64) bool, used int) {
	if len(*l) > endedMin+2*used { // a ticket that is first for long must not keep all that came and went behind it
		*l = slices.DeleteFunc(*l, func(ticket int64) bool { return !inUse(ticket) })
	}
	if i, there := slices.BinarySearch(*l, ticket); !there {
		*l = slices.Insert(*l, i, ticket)
	}
}

// first returns the lowest ticket that is in use, or 0.
func (l *ticketList) first(inUse func(int64) bool) int64 {
	for len(*l) > 0 && !inUse((*l)[0]) {
		*l = (*l)[1:]
	}
	if len(*l) == 0 {
		return 0
	}
	return (*l)[0]
}
