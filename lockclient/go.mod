// The Go SDK is a module of its own, without a dependency: programs that use it see nothing of the server's.
module github.com/fencegate/fencegate/lockclient

// The second newest minor version. Go's own policy supports both.
go 1.25.0
