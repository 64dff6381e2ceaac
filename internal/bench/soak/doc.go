// Package soak loads two gateways for a long time, and finds out whether anything grows: memory, goroutines, file
// descriptors and connections of each gateway, and each table and index of the database.
//
// Clients contend for a fixed set of locks, checked by package load. Beside them, locks that no one used before are
// acquired, written to and released at a steady rate, so that state kept for each name would show. One snapshot is held
// open for a minute after a third of the time.
//
// What is measured is flat if its median in the last third of the time is not above that in the middle third by more
// than a tenth and a slack. Rows that fencegate keeps for each name for ever are judged by bytes a name.
package soak
