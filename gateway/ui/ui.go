// Package ui holds the dashboard: one page, its modules and styles, as they are sent to browsers. Nothing builds them, and they load nothing from
// elsewhere. It shows what the HTTP API tells, and can do nothing that the API can't.
//
// index.html is the shell; app.js shows in it the page that the address names, a module of pages/. What each module offers stands at its top.
package ui

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"path"
	"sync"
)

// Index is the name of the page itself; all else is loaded by it.
const Index = "index.html"

//go:embed index.html *.js *.css *.svg charts pages
var embedded embed.FS

// File is one file of the dashboard.
type File struct {
	ContentType string
	// ETag is strong and quoted: it changes when, and only when, the content does.
	ETag    string
	Content []byte
}

// contentTypes are given here and not by the machine's tables, which may say otherwise or nothing.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".svg":  "image/svg+xml",
}

// Files returns all files by their names, which are paths with slashes.
var Files = sync.OnceValues(load)

func load() (map[string]File, error) {
	files := map[string]File{}
	err := fs.WalkDir(embedded, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := embedded.ReadFile(name)
		if err != nil {
			return err
		}
		digest := sha256.Sum256(content)
		files[name] = File{contentTypes[path.Ext(name)], `"` + hex.EncodeToString(digest[:12]) + `"`, content}
		return nil
	})
	return files, err
}
