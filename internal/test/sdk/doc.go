// Package sdk holds tests alone: lockclient before real gateways, in front of a real PostgreSQL, through proxies that
// lose answers, and in processes that are frozen. The SDK's own module has the tests that need the standard library
// only. The packages below test its adapters, which have modules of their own.
package sdk
