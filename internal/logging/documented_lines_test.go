package logging_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
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
	logged := map[string][]string{}
	files := map[string]*ast.File{}
	for _, root := range []string{"gateway", "store", "cmd/fencegate", "internal/embeddedpg", "internal/tracing"} {
		err := filepath.WalkDir("../../"+root, func(path string, _ fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
				files[path], err = parser.ParseFile(token.NewFileSet(), path, nil, 0)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	returned := returnedTexts(files)
	for path, file := range files {
		linesOf(t, path, file, returned, logged)
	}
	if len(logged) < 20 {
		t.Errorf("only these were found: %v", logged)
	}
	for message, keys := range logged {
		if there, ok := documented[message]; !ok {
			t.Errorf("%q is not in the table", message)
		} else if i := slices.IndexFunc(keys, func(key string) bool { return !slices.Contains(there, key) }); i >= 0 {
			t.Errorf("%q: the key %s is not in the table", message, keys[i])
		}
	}
	for message, keys := range documented {
		for _, key := range keys {
			if !slices.Contains(logged[message], key) {
				t.Errorf("%q: the key %s is in the table, and nowhere else", message, key)
			}
		}
		if _, ok := logged[message]; !ok {
			t.Errorf("%q is in the table, and nowhere else", message)
		}
	}
}

// linesOf adds the messages that a file logs, with their keys. A message may be in a variable that is assigned constants, or
// the result of a function that returns constants.
func linesOf(t *testing.T, path string, file *ast.File, returned map[string][]string, logged map[string][]string) {
	t.Helper()
	chosen := textsOf(file, returned)
	ast.Inspect(file, func(node ast.Node) bool {
		call, ok := node.(*ast.CallExpr)
		if !ok {
			return true
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !isLogger(method.X) {
			return true
		}
		index, ok := logMethods[method.Sel.Name]
		if !ok || len(call.Args) <= index {
			return true
		}
		messages := []string{}
		switch message := call.Args[index].(type) {
		case *ast.BasicLit:
			messages = append(messages, unquoted(message))
		case *ast.Ident:
			messages = chosen[message.Name]
		}
		if len(messages) == 0 {
			t.Errorf("%s: a line whose message is no constant", path)
		}
		for _, message := range messages {
			logged[message] = append(logged[message], keysOf(call.Args[index+1:])...)
		}
		return true
	})
}

func isLogger(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name == "logger" || x.Name == "log"
	case *ast.SelectorExpr:
		return x.Sel.Name == "Logger" || x.Sel.Name == "logger" || x.Sel.Name == "log"
	}
	return false
}

// returnedTexts are the constants that functions return, by their names.
func returnedTexts(files map[string]*ast.File) map[string][]string {
	texts := map[string][]string{}
	for _, file := range files {
		for _, declaration := range file.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(function, func(node ast.Node) bool {
				if returns, ok := node.(*ast.ReturnStmt); ok {
					for _, result := range returns.Results {
						if text, ok := result.(*ast.BasicLit); ok && text.Kind == token.STRING && unquoted(text) != "" {
							texts[function.Name.Name] = append(texts[function.Name.Name], unquoted(text))
						}
					}
				}
				return true
			})
		}
	}
	return texts
}

// textsOf are the constants that are assigned to variables of a name.
func textsOf(file *ast.File, returned map[string][]string) map[string][]string {
	texts := map[string][]string{}
	ast.Inspect(file, func(node ast.Node) bool {
		assigned, ok := node.(*ast.AssignStmt)
		if !ok {
			return true
		}
		if call, ok := assigned.Rhs[0].(*ast.CallExpr); ok && len(assigned.Lhs) > 1 {
			function, ok := call.Fun.(*ast.Ident)
			if selector, of := call.Fun.(*ast.SelectorExpr); of {
				function, ok = selector.Sel, true
			}
			if ok {
				for _, result := range assigned.Lhs {
					if name, ok := result.(*ast.Ident); ok {
						texts[name.Name] = append(texts[name.Name], returned[function.Name]...)
					}
				}
			}
		}
		if len(assigned.Lhs) == len(assigned.Rhs) {
			for i := range assigned.Lhs {
				name, isName := assigned.Lhs[i].(*ast.Ident)
				text, isText := assigned.Rhs[i].(*ast.BasicLit)
				if isName && isText && text.Kind == token.STRING {
					texts[name.Name] = append(texts[name.Name], unquoted(text))
				}
			}
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
