package embeddedpg

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
)

const (
	// logSizeMax is the size in bytes at which a start puts the log aside. Two files of about this size are kept.
	logSizeMax = 16 << 20
	// tailSizeMax and tailLinesMax bound what an error quotes.
	tailSizeMax  = 8 << 10
	tailLinesMax = 20
)

// openServerLog opens PostgreSQL's log to append to. start is its size: what this run writes comes after.
func openServerLog(path string) (file *os.File, start int64, err error) {
	info, err := os.Stat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, 0, err
	}
	if err == nil && info.Size() > logSizeMax {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, 0, err
		}
	}
	if file, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
		return nil, 0, err
	}
	if start, err = file.Seek(0, io.SeekEnd); err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return file, start, nil
}

// logTail returns the last lines that were written to the log since start.
func logTail(path string, start int64) string {
	file, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err.Error()
	}
	from := max(start, info.Size()-tailSizeMax)
	text, err := io.ReadAll(io.NewSectionReader(file, from, info.Size()-from))
	if err != nil {
		return err.Error()
	}
	return lastLines(text)
}

func lastLines(text []byte) string {
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-tailLinesMax):], []byte("\n")))
}
