package main

import (
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fencegate/fencegate/internal/test/mutants/judge"
)

// goPackages are the packages in Go that are broken, and the packages whose tests judge them.
var goPackages = map[string][]string{
	"store/groupcommit": {"./store/groupcommit", "./store/engine"},
	"store/waitqueue":   {"./store/waitqueue", "./store/engine"},
	"store/engine":      {"./store/engine", "./store/postgres"},
	"lockclient":        {"github.com/fencegate/fencegate/lockclient", "./internal/test/sdk"},
	"gateway/auth":      {"./gateway/auth", "./gateway"},
}

// goPatience bounds the tests of a package on a mutant. It is several times what they take.
const goPatience = 3 * time.Minute

// allGo returns every mutant of the packages.
func allGo() (places []*place) {
	for _, directory := range slices.Sorted(maps.Keys(goPackages)) {
		files, _ := filepath.Glob(directory + "/*.go")
		for _, file := range files {
			if !strings.HasSuffix(file, "_test.go") {
				places = append(places, goMutants(directory, file)...)
			}
		}
	}
	return places
}

// goMutants negates each condition of a file, flips each comparison, and drops each statement that is a call.
func goMutants(directory, file string) (places []*place) {
	source, err := os.ReadFile(file)
	if err != nil {
		panic(err)
	}
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, file, source, parser.SkipObjectResolution)
	if err != nil {
		panic(err)
	}
	function := ""
	replace := func(from, to token.Pos, text string) {
		start, end := files.Position(from), files.Position(to)
		old := string(source[start.Offset:end.Offset])
		line := strings.TrimSpace(strings.Split(string(source), "\n")[start.Line-1])
		places = append(places, &place{directory: directory, file: file, line: start.Line, mutant: mutant{
			function: function, start: start.Offset,
			change: fmt.Sprintf("%s → %s in %s", before(old, "\n"), text, line),
			source: string(source[:start.Offset]) + text + string(source[end.Offset:]),
		}})
	}
	negate := func(condition ast.Expr) {
		if condition != nil {
			start, end := files.Position(condition.Pos()), files.Position(condition.End())
			replace(condition.Pos(), condition.End(), "!("+string(source[start.Offset:end.Offset])+")")
		}
	}
	ast.Inspect(parsed, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.FuncDecl:
			function = node.Name.Name
		case *ast.IfStmt:
			negate(node.Cond)
		case *ast.ForStmt:
			negate(node.Cond)
		case *ast.BinaryExpr:
			for _, flipped := range flips[strings.NewReplacer("==", "=", "!=", "<>").Replace(node.Op.String())] {
				operator := strings.NewReplacer("<>", "!=").Replace(flipped)
				if operator == "=" {
					operator = "=="
				}
				replace(node.OpPos, node.OpPos+token.Pos(len(node.Op.String())), operator)
			}
		case *ast.ExprStmt:
			if _, is := node.X.(*ast.CallExpr); is {
				replace(node.Pos(), node.End(), "")
			}
		}
		return true
	})
	return places
}

func before(text, separator string) string {
	text, _, _ = strings.Cut(text, separator)
	return text
}

// judgeGo runs the tests on mutants in Go, one after the other. The tests build the mutants in memory: no file changes.
func judgeGo(ctx context.Context, places []*place) error {
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	broken, overlay := filepath.Join(dir, "broken.go"), filepath.Join(dir, "overlay.json")
	for _, p := range places {
		original, err := filepath.Abs(p.file)
		if err != nil {
			return err
		}
		replaced, err := json.Marshal(map[string]any{"Replace": map[string]string{original: broken}})
		if err != nil {
			return err
		}
		if err := os.WriteFile(broken, []byte(p.source), 0o600); err != nil {
			return err
		}
		if err := os.WriteFile(overlay, replaced, 0o600); err != nil {
			return err
		}
		p.verdict = goVerdict(ctx, p, overlay)
	}
	return nil
}

func goVerdict(ctx context.Context, p *place, overlay string) judge.Verdict {
	build := exec.CommandContext(ctx, "go", "build", "-overlay="+overlay, goPackages[p.directory][0])
	if said, err := build.CombinedOutput(); err != nil {
		return judge.Verdict{Refused: string(said)}
	}
	verdict := judge.Verdict{}
	for _, name := range goPackages[p.directory] {
		verdict.Cases++
		ctx, cancel := context.WithTimeout(ctx, goPatience)
		run := exec.CommandContext(ctx, "go", "test", "-overlay="+overlay, "-vet=off", "-failfast",
			"-timeout="+(goPatience-10*time.Second).String(), name)
		run.WaitDelay = time.Second
		said, err := run.CombinedOutput()
		cancel()
		if err != nil {
			verdict.Killer, verdict.Failure = name, string(said)
			break
		}
	}
	return verdict
}
