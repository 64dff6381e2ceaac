package top

import (
	"regexp"
	"unicode/utf8"
)

// key is a key of the keyboard, as what it sends.
type key string

const (
	keyEscape   key = "\x1b"
	keyCtrlC    key = "\x03"
	keyTab      key = "\t"
	keyEnter    key = "\r"
	keyErase    key = "\x7f"
	keyEraseAll key = "\x15" // Ctrl-U
	keyUp       key = "\x1b[A"
	keyDown     key = "\x1b[B"
	keyHome     key = "\x1b[H"
	keyPageUp   key = "\x1b[5~"
	keyPageDown key = "\x1b[6~"
)

// aliases are keys that do the same as another, where no text is typed.
var aliases = map[key]key{
	"q": keyEscape, " ": "p", "k": keyUp, "j": keyDown, "g": keyHome, "\x1b[1~": keyHome, "\x1b[7~": keyHome, "=": "+",
	"h": "?", "\n": keyEnter,
}

func (k key) withoutAlias() key {
	if other, ok := aliases[k]; ok {
		return other
	}
	return k
}

// keysOf splits what was read into keys, each a character or a control sequence. An escape that begins no control sequence is a key of its own.
func keysOf(read []byte) []key {
	var keys []key
	for len(read) > 0 {
		_, length := utf8.DecodeRune(read)
		isSequence := false
		if sequence := controlSequence.Find(read); sequence != nil {
			length, isSequence = len(sequence), true
		}
		k := key(read[:length])
		if isSequence {
			k = "\x1b[" + k[2:] // the keypad's application mode sends ESC O
		}
		keys, read = append(keys, k), read[length:]
	}
	return keys
}

// controlSequence is one of ECMA-48, with its parameters and its final byte.
var controlSequence = regexp.MustCompile(`^\x1b[\[O][^\x40-\x7e]*[\x40-\x7e]`)
