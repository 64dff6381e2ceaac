// Package guards holds tests alone: transactions of pgxguard and sqlguard on protected tables, before a real gateway.
package guards
