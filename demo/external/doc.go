// Package external lets the workers of the demo acquire their lock from etcd, ZooKeeper or Redis. fencegate then only
// checks the writes, by the number that the service gave its lock.
//
// It is a module of its own: the clients of these services never enter fencegate's product.
package external
