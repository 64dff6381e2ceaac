// The examples are a module of their own: the drivers and ORMs that they show never enter the product.
module github.com/fencegate/fencegate/examples/go

go 1.26.0

replace (
	github.com/fencegate/fencegate/lockclient => ../../lockclient
	github.com/fencegate/fencegate/lockclient/pgxguard => ../../lockclient/pgxguard
)

require (
	github.com/fencegate/fencegate/lockclient v0.0.0
	github.com/fencegate/fencegate/lockclient/pgxguard v0.0.0
	github.com/jackc/pgx/v5 v5.12.0
	github.com/lib/pq v1.12.3
	gorm.io/driver/postgres v1.6.3
	gorm.io/gorm v1.31.2
)

require (
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/jinzhu/inflection v1.0.0 // indirect
	github.com/jinzhu/now v1.1.5 // indirect
	github.com/pmezard/go-difflib v1.0.1-0.20181226105442-5d4384ee4fb2 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)
