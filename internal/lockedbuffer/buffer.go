// Package lockedbuffer has a buffer that collects what processes and goroutines write, while others read it.
package lockedbuffer

import (
	"bytes"
	"sync"
)

// Buffer is a bytes.Buffer for concurrent use. The zero value is empty.
type Buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write appends text. It never fails.
func (b *Buffer) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(text)
}

// String returns everything that was written.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
