package deploy

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// A release has the systems that `make cross` builds for, of the sources that the image of the Dockerfile is built of.
func TestRelease(t *testing.T) {
	t.Parallel()
	var release struct {
		Builds []struct{ Targets []string }
	}
	check(t, yaml.Unmarshal([]byte(read(t, "../.goreleaser.yaml")), &release))
	if len(release.Builds) != 1 {
		t.Fatalf("expected one build, saw %+v", release)
	}
	built := strings.Fields(regexp.MustCompile(`(?m)^SYSTEMS := (.*)$`).FindStringSubmatch(read(t, "../Makefile"))[1])
	built = append(built, "linux/amd64")
	var released []string
	for _, target := range release.Builds[0].Targets {
		parts := strings.Split(target, "_")
		released = append(released, parts[0]+"/"+parts[1])
	}
	slices.Sort(built)
	slices.Sort(released)
	if !slices.Equal(built, released) {
		t.Errorf("a release is for %q, `make cross` and the other targets build for %q", released, built)
	}
}

// The chart and the clients have one version: a release's. The release is built by the Go that the Dockerfile names.
func TestReleaseVersions(t *testing.T) {
	t.Parallel()
	find := func(path, pattern string) string {
		t.Helper()
		found := regexp.MustCompile(pattern).FindStringSubmatch(read(t, path))
		if found == nil {
			t.Fatalf("%s has nothing like %s", path, pattern)
		}
		return found[1]
	}
	version := find("kubernetes/chart/Chart.yaml", `(?m)^version: (.+)$`)
	for path, pattern := range map[string]string{
		"../clients/python/pyproject.toml":   `(?m)^version = "(.+)"$`,
		"../clients/typescript/package.json": `(?m)^  "version": "(.+)",$`,
	} {
		if found := find(path, pattern); found != version {
			t.Errorf("%s has the version %s, the chart %s", path, found, version)
		}
	}
	const golang = `(golang:\S+@sha256:[0-9a-f]+)`
	if inImage, inRelease := find("../Dockerfile", golang), find("../.github/workflows/release.yaml", golang); inImage != inRelease {
		t.Errorf("the image is built in %s, the release in %s", inImage, inRelease)
	}
}
