package deploy

import (
	"regexp"
	"testing"
)

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
