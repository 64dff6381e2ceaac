package migrations

// What only the tests need.
var (
	GuardDigest   = guardDigest
	GuardFiles    = guardFiles
	NumberedFiles = numberedFiles
)

const AdvisoryLock = advisoryLock
