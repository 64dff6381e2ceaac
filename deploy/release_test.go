package deploy

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// A release has the systems that `make cross` builds for, and its image is built from the files that .dockerignore lets
// through.
func TestRelease(t *testing.T) {
	t.Parallel()
	var release struct {
		Builds []struct{ Targets []string }
		Images []struct {
			Platforms  []string
			ExtraFiles []string `yaml:"extra_files"`
		} `yaml:"dockers_v2"`
	}
	check(t, yaml.Unmarshal([]byte(read(t, "../.goreleaser.yaml")), &release))
	if len(release.Builds) != 1 || len(release.Images) != 1 {
		t.Fatalf("expected one build and one image, saw %+v", release)
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
	for _, platform := range release.Images[0].Platforms {
		if !slices.Contains(released, platform) {
			t.Errorf("the image is for %s, and the programs are not", platform)
		}
	}
	var context []string
	for line := range strings.Lines(read(t, "../.dockerignore")) {
		if file, through := strings.CutPrefix(strings.TrimSpace(line), "!"); through {
			context = append(context, file)
		}
	}
	files := slices.Clone(release.Images[0].ExtraFiles)
	slices.Sort(context)
	slices.Sort(files)
	if !slices.Equal(context, files) {
		t.Errorf("the release's image is built from %q, expected those of .dockerignore, %q", files, context)
	}
}
