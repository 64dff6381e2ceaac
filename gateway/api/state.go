package api

// StateVersions are the versions of a state of Terraform that are kept, the newest first.
type StateVersions struct {
	Resource string         `json:"resource"`
	Versions []StateVersion `json:"versions"`
}

// StateVersion describes a version of a state.
type StateVersion struct {
	Version      int64  `json:"version"`
	FencingToken int64  `json:"fencing_token"`
	Serial       *int64 `json:"serial,omitempty"`
	Size         int64  `json:"size"`
	UpdatedAt    Time   `json:"updated_at"`
}
