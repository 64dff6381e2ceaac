// Package top is the dashboard in a terminal: writes and rejections, holders and waiters, the database and the
// gateways.
//
// Read reads a Snapshot from a gateway, Screen draws one as text, and Run keeps doing both until the user has seen
// enough. Nothing that others chose, such as a name or an owner, reaches the terminal with a control character in it.
package top
