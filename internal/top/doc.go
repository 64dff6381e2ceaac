// Package top shows in a terminal what the dashboard shows in a browser: what is written and shut out, who holds and waits, and how the
// database and the gateways are.
//
// A Source reads a Snapshot from a gateway, Screen draws one as text, and Run keeps doing both until the user has seen enough. Nothing that
// others chose, such as a name or an owner, reaches the terminal with a control character in it.
package top
