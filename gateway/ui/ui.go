// Package ui holds the dashboard: one page, its modules and styles, as they are sent to browsers. There is no build
// step, and the page loads nothing from other hosts. It shows what the HTTP API returns, and can do nothing that the
// API can't.
//
// index.html is the shell. app.js shows the page that the address names, a module of pages/. A comment at the top of
// each module describes its exports.
package ui

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"path"
	"sync"
)

// Index is the name of the page itself, which loads all other files.
const Index = "index.html"

//go:embed index.html *.js *.css *.svg charts pages
var embedded embed.FS

// File is one file of the dashboard.
type File struct {
	ContentType string
	// ETag is strong and quoted: it changes if and only if the content changes.
	ETag    string
	Content []byte
}

// NewFile is a file with this content.
func NewFile(contentType string, content []byte) File {
	digest := sha256.Sum256(content)
	return File{contentType, `"` + hex.EncodeToString(digest[:12]) + `"`, content}
}

// contentTypes are fixed here, since the machine's tables may be different or incomplete.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".svg":  "image/svg+xml",
}

// Files returns all files by name, a path with slashes.
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
		files[name] = NewFile(contentTypes[path.Ext(name)], content)
		return nil
	})
	return files, err
}
