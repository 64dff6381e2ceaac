package logging_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// logMethods are those of a logger, with the index of the message among their arguments.
var logMethods = map[string]int{
	"Debug": 0, "Info": 0, "Warn": 0, "Error": 0, "DebugContext": 1, "InfoContext": 1, "WarnContext": 1,
	"ErrorContext": 1, "Log": 2, "LogAttrs": 2,
}

var documentedLine = regexp.MustCompile("^\\| `(.*?)` \\| [a-z, ]+ \\| (.*?) ?\\| ")

// Every line that the gateway logs, and each of its keys, is in the table of docs/operations.md; and there is nothing
// else in that.
func TestLinesAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "## Logging\n")
	section, _, _ = strings.Cut(section, "\n## ")
	documented := map[string][]string{}
	for line := range strings.Lines(section) {
		if found := documentedLine.FindStringSubmatch(line); found != nil {
			documented[found[1]] = strings.FieldsFunc(found[2], func(r rune) bool { return strings.ContainsRune("`, ", r) })
		}
	}
	delete(documented, "msg") // the head
	logged := loggedLines(t, "gateway", "store", "cmd/fencegate", "internal/embeddedpg", "internal/tracing")
	if len(logged) < 20 {
		t.Errorf("only these were found: %v", logged)
	}
	for _, message := range slices.Sorted(maps.Keys(logged)) {
		keys := slices.Compact(slices.Sorted(slices.Values(logged[message])))
		table, ok := documented[message]
		if slices.Sort(table); !ok || !slices.Equal(keys, table) {
			t.Errorf("%q has the keys %q, and in the table (there: %t) %q", message, keys, ok, table)
		}
		delete(documented, message)
	}
	if len(documented) > 0 {
		t.Errorf("these are in the table, and nowhere else: %q", documented)
	}
}

// loggedLines returns the messages that the packages log, with their keys. A message is a constant, or one of those that
// endpoint.Failure returns.
func loggedLines(t *testing.T, roots ...string) map[string][]string {
	t.Helper()
	logged := map[string][]string{}
	var failures, keysOfFailures []string
	read := func(path string, node ast.Node) bool {
		switch node := node.(type) {
		case *ast.FuncDecl:
			if node.Name.Name == "Failure" {
				failures = textsIn(node.Body)
			}
		case *ast.CallExpr:
			method, ok := node.Fun.(*ast.SelectorExpr)
			if !ok || !isLogger(method.X) {
				return true
			}
			index, ok := logMethods[method.Sel.Name]
			if !ok || len(node.Args) <= index {
				return true
			}
			keys := keysOf(node.Args[index+1:])
			switch message := node.Args[index].(type) {
			case *ast.BasicLit:
				text := unquoted(message)
				logged[text] = append(logged[text], keys...)
			case *ast.Ident:
				keysOfFailures = append(keysOfFailures, keys...)
			default:
				t.Errorf("%s: a line whose message is no constant", path)
			}
		}
		return true
	}
	for _, root := range roots {
		err := filepath.WalkDir("../../"+root, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err == nil {
				ast.Inspect(file, func(node ast.Node) bool { return read(path, node) })
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, message := range failures {
		logged[message] = keysOfFailures
	}
	return logged
}

func isLogger(x ast.Expr) bool {
	if selector, ok := x.(*ast.SelectorExpr); ok {
		x = selector.Sel
	}
	name, ok := x.(*ast.Ident)
	return ok && slices.Contains([]string{"log", "logger", "Logger"}, name.Name)
}

// textsIn are the texts in a function, but for the empty one.
func textsIn(node ast.Node) (texts []string) {
	ast.Inspect(node, func(node ast.Node) bool {
		if literal, ok := node.(*ast.BasicLit); ok && literal.Kind == token.STRING && unquoted(literal) != "" {
			texts = append(texts, unquoted(literal))
		}
		return true
	})
	return texts
}

// keysOf are every second argument, or the first of each slog.Attr.
func keysOf(args []ast.Expr) (keys []string) {
	for i, arg := range args {
		switch arg := arg.(type) {
		case *ast.BasicLit:
			if i%2 == 0 {
				keys = append(keys, unquoted(arg))
			}
		case *ast.CallExpr:
			if made, ok := arg.Fun.(*ast.SelectorExpr); ok {
				if of, ok := made.X.(*ast.Ident); ok && of.Name == "slog" {
					keys = append(keys, unquoted(arg.Args[0].(*ast.BasicLit)))
				}
			}
		}
	}
	return keys
}

func unquoted(literal *ast.BasicLit) string {
	text, err := strconv.Unquote(literal.Value)
	if err != nil {
		return literal.Value
	}
	return text
}
