package vault_test

import (
	_ "embed"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	log "github.com/hashicorp/go-hclog"
	"github.com/hashicorp/vault/sdk/physical"

	"github.com/fencegate/fencegate/integrations/vault"
)

var physicalBackends = map[string]physical.Factory{
	"fencegate": vault.NewBackend,
}

//go:embed README.md
var readme string

//go:embed readme_test.go
var source string

// block returns the block of this language in the README.
func block(language string) string {
	_, after, _ := strings.Cut(readme, "```"+language+"\n")
	shown, _, _ := strings.Cut(after, "```")
	return shown
}

var setting = regexp.MustCompile(`(?m)^  (\w+) += "(.*)"$`)

// testReadme makes a backend of the configuration in the README, at this gateway.
func testReadme(t *testing.T, url string) {
	if shown := block("go"); shown == "" || !strings.Contains(source, shown) {
		t.Errorf("the README shows code that is not tested:\n%s", shown)
	}
	config := map[string]string{}
	for _, match := range setting.FindAllStringSubmatch(block("hcl"), -1) {
		config[match[1]] = match[2]
		if !strings.Contains(readme, "`"+match[1]+"`") {
			t.Errorf("the README does not explain %s", match[1])
		}
	}
	if len(config) != 5 {
		t.Fatalf("the configuration in the README is %v", config)
	}
	config["address"] = url + strings.TrimPrefix(config["address"], "http://127.0.0.1:8080")
	config["token_file"] = filepath.Join(t.TempDir(), "key")
	check(t, os.WriteFile(config["token_file"], []byte("ignored"), 0o600))
	backend, err := physicalBackends["fencegate"](config, log.NewNullLogger())
	check(t, err)
	physical.ExerciseBackend(t, backend)
}
