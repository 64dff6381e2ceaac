// Package enginetest has databases and engines for the tests of the store, of its machines and of the engine.
package enginetest
