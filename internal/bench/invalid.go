package bench

import "errors"

// ErrInvalid says that a setting makes no sense; the message names its flag.
var ErrInvalid = errors.New("invalid configuration")
