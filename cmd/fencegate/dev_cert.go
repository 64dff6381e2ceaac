package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fencegate/fencegate/internal/devcert"
)

type devCertCmd struct {
	Dir    string   `arg:"" help:"Directory for the files; it is made if it is missing." type:"path"`
	Host   []string `help:"Names and addresses of the gateway." default:"localhost,127.0.0.1,::1"`
	Client string   `help:"Name in the client's certificate." default:"${owner}"`
}

// Help is shown by "fencegate dev-cert --help".
func (devCertCmd) Help() string {
	return "Makes an authority, and signs a certificate for the gateway and one for a client, valid for a year. The " +
		"authority's key is not kept: nobody can sign more. Files are never overwritten. Not for production."
}

// Run makes the files.
func (c *devCertCmd) Run(streams streams) error {
	authority, err := devcert.NewAuthority("fencegate dev-cert")
	if err != nil {
		return err
	}
	server, err := authority.Issue(devcert.Request{Name: c.Host[0], Hosts: c.Host})
	if err != nil {
		return err
	}
	client, err := authority.Issue(devcert.Request{Name: c.Client})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return err
	}
	for _, file := range []struct {
		name string
		text []byte
	}{
		{"ca.pem", authority.PEM},
		{"server.pem", server.Certificate}, {"server-key.pem", server.Key},
		{"client.pem", client.Certificate}, {"client-key.pem", client.Key},
	} {
		if err := writeNew(filepath.Join(c.Dir, file.name), file.text); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(streams.out, `fencegate serve --tls-cert %[1]s/server.pem --tls-key %[1]s/server-key.pem --client-ca %[1]s/ca.pem
fencegate health --url https://%[2]s:8080 --ca-cert %[1]s/ca.pem --cert %[1]s/client.pem --key %[1]s/client-key.pem
`, c.Dir, c.Host[0])
	return err
}

// writeNew writes a file that only its owner can read, and none over another.
func writeNew(path string, text []byte) (err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return usagef("%s is there already", path)
	} else if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	_, err = file.Write(text)
	return err
}
