package top

// style is a terminal's rendition (ECMA-48 SGR); the zero value is plain. Nothing is shown by colour alone.
type style string

const (
	bold  style = "1"
	dim   style = "2"
	alarm style = "1;31"
	good  style = "32"
	mark  style = "7"
)

// painter writes text in a style, or plain where the terminal shall have none.
type painter bool

func (p painter) paint(s style, text string) string {
	if !p || text == "" {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}
