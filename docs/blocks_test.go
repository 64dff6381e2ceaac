//go:build unix

package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// root is the clone, seen from this folder.
const root = ".."

// block is a piece of code in a document: between fences, or indented and beginning with a command.
type block struct {
	file     string // the document, from the root of the clone
	line     int    // of its first line
	language string // the info string of its fence; of an indented block the one that it would have
	text     string
}

// first is the first line, by which the table of exceptions names the block.
func (b block) first() string {
	line, _, _ := strings.Cut(b.text, "\n")
	return strings.TrimSpace(line)
}

var (
	// indentedCommand begins an indented block of commands. Other indented blocks are HTTP, URLs, or lists.
	indentedCommand = regexp.MustCompile(`^(\$ |(make|fencegate|curl|psql|go|pip|npm|docker|kubectl|helm) \S)`)
	fence           = regexp.MustCompile("^( *)```(\\w*)")
)

// documents returns the paths of all documents, from the root of the clone.
func documents(t *testing.T) []string {
	t.Helper()
	var found []string
	check(t, filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() && isOutside(path, entry) {
			return filepath.SkipDir
		}
		if strings.HasSuffix(name, ".md") && name != "CHANGELOG.md" {
			relative, err := filepath.Rel(root, path)
			found = append(found, filepath.ToSlash(relative))
			return err
		}
		return nil
	}))
	return found
}

// isOutside is whether a folder has nothing of the project's own text.
func isOutside(path string, entry os.DirEntry) bool {
	return slices.Contains([]string{"node_modules", "testdata", "bin", "artifacts"}, entry.Name()) ||
		path != root && strings.HasPrefix(entry.Name(), ".")
}

// blocksOf returns the blocks of a document in their order.
func blocksOf(t *testing.T, file string) []block {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	check(t, err)
	lines := strings.Split(string(text), "\n")
	var found []block
	for i := 0; i < len(lines); i++ {
		if opened := fence.FindStringSubmatch(lines[i]); opened != nil {
			length := slices.IndexFunc(lines[i+1:], func(line string) bool { return strings.TrimSpace(line) == "```" })
			if length < 0 {
				t.Fatalf("%s:%d: the block is not closed", file, i+1)
			}
			found = append(found, block{file, i + 2, opened[2], unindented(lines[i+1:i+1+length], len(opened[1]))})
			i += length + 1
			continue
		}
		content := strings.TrimLeft(lines[i], " ")
		indent := len(lines[i]) - len(content)
		if indent < 4 || !indentedCommand.MatchString(content) || i > 0 && strings.TrimSpace(lines[i-1]) != "" {
			continue
		}
		end := i
		for end < len(lines) && (strings.TrimSpace(lines[end]) == "" || strings.HasPrefix(lines[end], lines[i][:indent])) {
			end++
		}
		language := "sh"
		if strings.HasPrefix(content, "$ ") {
			language = "console"
		}
		found = append(found, block{file, i + 1, language, unindented(lines[i:end], indent)})
		i = end - 1
	}
	return found
}

func unindented(lines []string, indent int) string {
	var text strings.Builder
	for _, line := range lines {
		text.WriteString(line[min(indent, len(line)):] + "\n")
	}
	return strings.TrimRight(text.String(), "\n") + "\n"
}
