package peers

import (
	"context"
	"net"
)

// Program is a server of ours, in a process of its own.
type Program struct {
	Address string

	process *process
}

// StartProgram runs a program that listens on the address that its args, made from it, name.
func StartProgram(ctx context.Context, path string, args func(address string) []string) (*Program, error) {
	command := command{program: path, ports: 1, args: func(_ string,
		ports []int) []string {
		return args(address(ports[0]))
	},
		ready: func(ctx context.Context, ports []int) error {
			connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address(ports[0]))
			if err != nil {
				return err
			}
			return connection.Close()
		}}
	process, ports, err := command.start(ctx)
	if err != nil {
		return nil, err
	}
	return &Program{Address: address(ports[0]), process: process}, nil
}

// Stop kills the process.
func (p *Program) Stop() error { return p.process.kill() }

// PID is the number of the process.
func (p *Program) PID() int { return p.process.pid() }
