package migrations

// What the tests look at and no program needs to.
var (
	GuardDigest   = guardDigest
	NumberedFiles = numberedFiles
)

const AdvisoryLock = advisoryLock
