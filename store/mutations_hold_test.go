package store_test

// holdMutations break the longest time that a lease may be held, and what a request_id stands for.
var holdMutations = []mutation{}
