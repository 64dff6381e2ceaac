// The adapter for gocron is a module of its own: the SDK does not depend on gocron.
module github.com/fencegate/fencegate/lockclient/gocronlock

go 1.25.0

replace github.com/fencegate/fencegate/lockclient => ..

require (
	github.com/fencegate/fencegate/lockclient v0.0.0
	github.com/go-co-op/gocron/v2 v2.21.2
)

require (
	github.com/google/uuid v1.6.0 // indirect
	github.com/jonboulle/clockwork v0.5.0 // indirect
	github.com/robfig/cron/v3 v3.0.1 // indirect
)
