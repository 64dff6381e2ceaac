package bench

import (
	"errors"
	"fmt"
)

// ErrInvalid says that a setting makes no sense; the message names its flag.
var ErrInvalid = errors.New("invalid configuration")

// Invalid returns ErrInvalid with a message.
func Invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}
