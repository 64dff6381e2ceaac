package surface_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/printer"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/internal/test/surface"
)

const root = "../../../"

// TestGo compares the exported declarations of the SDK and its subpackages, one a line, with go.golden.
func TestGo(t *testing.T) {
	t.Parallel()
	var directories []string
	check(t, filepath.WalkDir(root+"lockclient", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil || !entry.IsDir():
			return err
		case entry.Name() == "internal" || entry.Name() == "testdata":
			return filepath.SkipDir
		}
		directory, err := filepath.Rel(root, path)
		directories = append(directories, directory)
		return err
	}))
	var lines []string
	for _, directory := range directories {
		lines = append(lines, exported(t, directory)...)
	}
	if len(lines) < 100 {
		t.Fatalf("%d exported declarations were found in %v, want more", len(lines), directories)
	}
	surface.Compare(t, "testdata/go.golden", lines)
}

// TestFields compares the fields of the documents that commands print, and that are not the API's, and those of the
// access file with fields.golden.
func TestFields(t *testing.T) {
	t.Parallel()
	tagged := regexp.MustCompile("^`(json|yaml):")
	var lines []string
	for _, directory := range []string{
		"cmd/fencegate", "gateway/auth/accessfile", "internal/checks", "migrations",
	} {
		fset := token.NewFileSet()
		for _, file := range parse(t, fset, directory) {
			ast.Inspect(file, func(node ast.Node) bool {
				spec, _ := node.(*ast.TypeSpec)
				if spec == nil || spec.Name.Name == "patroniConfig" { // of Patroni's answer
					return true
				}
				document, _ := spec.Type.(*ast.StructType)
				if document == nil {
					return true
				}
				for _, field := range document.Fields.List {
					if field.Tag != nil && tagged.MatchString(field.Tag.Value) {
						lines = append(lines, directory+": "+spec.Name.Name+" "+source(t, fset, field.Type)+" "+field.Tag.Value)
					}
				}
				return true
			})
		}
	}
	surface.Compare(t, "testdata/fields.golden", lines)
}

// parse reads the files of the package in a directory, but its tests.
func parse(t *testing.T, fset *token.FileSet, directory string) (files []*ast.File) {
	t.Helper()
	names, err := filepath.Glob(root + directory + "/*.go")
	check(t, err)
	for _, name := range names {
		if !strings.HasSuffix(name, "_test.go") {
			file, err := parser.ParseFile(fset, name, nil, 0)
			check(t, err)
			files = append(files, file)
		}
	}
	return files
}

// source returns a node as Go's source, on one line.
func source(t *testing.T, fset *token.FileSet, node any) string {
	t.Helper()
	var text strings.Builder
	check(t, (&printer.Config{Mode: printer.RawFormat}).Fprint(&text, fset, node))
	return strings.Join(strings.Fields(text.String()), " ")
}

// exported returns the exported declarations of the package in a directory, if there is one.
func exported(t *testing.T, directory string) (lines []string) {
	t.Helper()
	fset := token.NewFileSet()
	files := parse(t, fset, directory)
	if len(files) == 0 {
		return nil
	}
	pkg, err := doc.NewFromFiles(fset, files, directory)
	check(t, err)
	add := func(prefix string, node any) { lines = append(lines, directory+": "+prefix+source(t, fset, node)) }
	funcs := func(funcs []*doc.Func) {
		for _, f := range funcs {
			f.Decl.Body, f.Decl.Doc = nil, nil
			add("", f.Decl)
		}
	}
	values := func(values []*doc.Value) {
		for _, value := range values {
			for _, spec := range value.Decl.Specs {
				spec := spec.(*ast.ValueSpec)
				spec.Doc, spec.Comment = nil, nil
				if value.Decl.Tok == token.VAR {
					spec.Values = nil
				}
				add(value.Decl.Tok.String()+" ", spec)
			}
		}
	}
	// fields adds each field or method by itself, with the tag, which is a field's name in JSON.
	fields := func(prefix string, list *ast.FieldList) {
		lines = append(lines, directory+": "+prefix)
		for _, field := range list.List {
			var names []string
			for _, name := range field.Names {
				names = append(names, name.Name+" ")
			}
			if names == nil {
				names = []string{"embeds "}
			}
			for _, name := range names {
				add(prefix+": "+name, field.Type)
				if field.Tag != nil {
					lines[len(lines)-1] += " " + field.Tag.Value
				}
			}
		}
	}
	values(pkg.Consts)
	values(pkg.Vars)
	funcs(pkg.Funcs)
	for _, of := range pkg.Types {
		values(of.Consts)
		values(of.Vars)
		funcs(of.Funcs)
		funcs(of.Methods)
		for _, spec := range of.Decl.Specs {
			spec := spec.(*ast.TypeSpec)
			prefix := "type " + spec.Name.Name + " "
			switch typ := spec.Type.(type) {
			case *ast.StructType:
				fields(prefix+"struct", typ.Fields)
			case *ast.InterfaceType:
				fields(prefix+"interface", typ.Methods)
			default:
				spec.Doc, spec.Comment = nil, nil
				add("type ", spec)
			}
		}
	}
	return lines
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(root + path)
	check(t, err)
	return string(text)
}
