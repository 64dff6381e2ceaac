// Package gocronlock holds tests alone: schedulers of gocron with lockclient/gocronlock, before a real gateway.
package gocronlock
