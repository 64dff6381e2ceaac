// Package spec is the contract as code: what each operation answers and changes, and what must hold of all that was
// committed. Every checker of the project drives it. It knows no SQL, and reads like docs/concepts.md, which it is to be
// read after:
//
//	rule      who may write: the rule's steps, as one function
//	state     what there is: locks, leases, queues, fences, records, sessions, policies
//	step      Step: a state and an operation → the next state and the answer
//	limit     what is refused, whatever the state
//	transaction  transactions of clients of SQL, whose snapshot may be older
//	op        operations and answers, and their text form
//	queue     InOrder: what a database decided about its queues, in its order
//	service   the operations as calls of a store or an engine
//	linear    short histories of many clients: a search for an order of the calls in which Step has the same answers
//	history   histories of any length: Check, by the order of the database's own numbers; promises has its predicates
//	recorder  the calls of clients while they work
//	explore   all runs of small worlds, checked against promises; what breaks without a safeguard: README.md
//
// A state is a value: no operation changes what another state shows. Two things are not the contract's to decide. Which
// token, lease_id and times a grant gets is the provider's choice ([Choice]), which is handed in, and [State.Step] says
// whether that choice was allowed. And time: a lease or a session runs out when an operation says so ([Expire],
// [ExpireSession]), which may be at any moment.
package spec
