package store

import "fmt"

// Fence is the row that decides which writes to a resource pass.
type Fence struct {
	Resource     Name
	GrantedToken int64 // the newest granted on the name, or on a subtree that it is in
	Open         bool  // whether that grant may still write
	LastToken    int64 // of the last accepted write, like LastSequence
	LastSequence int64
	Policy       Policy // what holds for the resource
}

// Accepted is the number of a write that a fence accepted: its token, and its sequence or 0.
type Accepted struct{ Token, Sequence int64 }

// Check returns ErrInvalid, naming the field, if the number is outside its limits.
func (a Accepted) Check() error {
	switch {
	case a.Token < 0 || a.Token > TokenMax:
		return fmt.Errorf("%w: last_token is %d, it must be 0 to 2^53-1", ErrInvalid, a.Token)
	case a.Sequence < 0 || a.Sequence > TokenMax:
		return fmt.Errorf("%w: last_sequence is %d, it must be 0 to 2^53-1", ErrInvalid, a.Sequence)
	}
	return nil
}
