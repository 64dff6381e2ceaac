package main

import (
	"strings"

	"github.com/fencegate/fencegate/gateway/api"
)

// outputFormat is the form of answers.
type outputFormat string

const (
	formatTable outputFormat = "table"
	formatJSON  outputFormat = "json"
	formatYAML  outputFormat = "yaml"
	formatEnv   outputFormat = "env"
)

// outputFlag is the form in which a command answers. "text" is what the table was called before.
type outputFlag struct {
	Output outputFormat `group:"connection" help:"table; json: a document on a line, as the API has it; yaml: the same documents; env: assignments for the eval of a shell. In json and yaml, errors are problem documents." enum:"table,json,yaml,env,text" default:"table" short:"o" placeholder:"FORMAT"`
}

// AfterApply is called by the parser.
func (f outputFlag) AfterApply(con *console) error {
	con.format = f.Output
	return nil
}

// documents reports whether answers are documents. If not, they are text for people.
func (f outputFormat) documents() bool { return f == formatJSON || f == formatYAML || f == formatEnv }

// problems reports whether errors are documents, too.
func (f outputFormat) problems() bool { return f == formatJSON || f == formatYAML }

// many returns an error for a command that has many answers: each would replace the variables of the one before.
func (f outputFormat) many() error {
	if f == formatEnv {
		return usagef("--output env is for a single answer: take json or yaml")
	}
	return nil
}

// answerPrefix begins the variables of fields that no command reads. Those of flags would change later commands.
const answerPrefix = "FENCEGATE_ANSWER_"

// grantVariables are the variables of a granted lease or session: those that "fencegate run" sets, which later commands
// read as their flags. Other answers, such as the state of a lock, have the tokens of others.
func grantVariables(document any) map[string]string {
	switch document.(type) {
	case api.Lease:
		return map[string]string{
			"lock": variableLock, "fencing_token": variableToken, "lease_id": variableLeaseID, "owner_id": variableOwnerID,
		}
	case api.Session:
		return map[string]string{"session_id": variableSessionID, "owner_id": variableOwnerID}
	}
	return nil
}

// endedVariables are those that mean nothing after an answer.
func endedVariables(document any) []string {
	switch document.(type) {
	case api.Released:
		return []string{variableLock, variableToken, variableLeaseID}
	case api.SessionEnded:
		return []string{variableSessionID}
	}
	return nil
}

// variableOf returns the names of the variables for the fields of a document.
func variableOf(document any) func(field string) string {
	granted := grantVariables(document)
	return func(field string) string {
		if variable, ok := granted[field]; ok {
			return variable
		}
		return answerPrefix + strings.ToUpper(field)
	}
}
