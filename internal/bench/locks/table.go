package locks

import (
	"fmt"
	"io"

	"github.com/fencegate/fencegate/internal/bench"
)

// WriteTables writes the report for people.
func (r Report) WriteTables(out io.Writer) error {
	_, _ = fmt.Fprintln(out, r.Environment)
	r.WriteParticipants(out)
	for _, write := range []func(io.Writer) error{r.writeWakeUps, r.writeCycles, r.writeLeases, r.writeTransactions,
		r.writeCrowds} {
		if err := write(out); err != nil {
			return err
		}
	}
	return nil
}

func (r Report) writeWakeUps(out io.Writer) error {
	var rows []string
	for _, line := range r.WakeUpLines() {
		rows = append(rows, bench.Row(line.Service, line.HandOffs, line.P50MS.Cells(2), line.P99MS.Cells(2),
			line.Ratio.Cells(2)))
	}
	return writeTable(out, "Wake-up: from the release to the next waiter's grant",
		"service\thand-offs\tp50 ms\t(min\tmax)\tp99 ms\t(min\tmax)\tp50 to etcd\t(min\tmax)\t", rows)
}

func (r Report) writeCycles(out io.Writer) error {
	var rows []string
	for _, line := range r.CycleLines() {
		rows = append(rows, bench.Row(line.Locks, line.Clients, line.Service, line.PerSecond.Cells(0),
			bench.Number(line.P50MS.Median, 2), bench.Number(line.P99MS.Median, 2), line.Ratio.Cells(2)))
	}
	return writeTable(out, "Cycles: acquire and release",
		"locks\tclients\tservice\tcycles/s\t(min\tmax)\tp50 ms\tp99 ms\tto etcd\t(min\tmax)\t", rows)
}

func (r Report) writeLeases(out io.Writer) error {
	var rows []string
	for _, line := range r.LeaseLines() {
		rows = append(rows, bench.Row(line.Operation, line.Clients, line.Service, line.PerSecond.Cells(0),
			bench.Number(line.P50MS.Median, 2), bench.Number(line.P99MS.Median, 2), line.Ratio.Cells(2)))
	}
	persistence := "persistence off"
	if r.RedisFsync {
		persistence = "appendfsync always"
	}
	return writeTable(out, "Leases: acquire and release, and heartbeats; Redis with "+persistence,
		"operation\tclients\tservice\tper second\t(min\tmax)\tp50 ms\tp99 ms\tto redislock\t(min\tmax)\t", rows)
}

func (r Report) writeTransactions(out io.Writer) error {
	var rows []string
	for _, s := range r.Transactions {
		rows = append(rows, bench.Row(s.Service, s.Heartbeats, s.Transactions, bench.Number(s.Background, 0),
			bench.Number(s.PerHeartbeat, 3)))
	}
	return writeTable(out, "PostgreSQL's transactions for a heartbeat",
		"service\theartbeats\ttransactions\tof them background\tper heartbeat\t", rows)
}

func (r Report) writeCrowds(out io.Writer) error {
	var rows []string
	for _, line := range r.CrowdLines() {
		rows = append(rows, bench.Row(line.Figure, line.Cells(1)))
	}
	title := "Crowd"
	if len(r.Crowds) > 0 {
		s := r.Crowds[0]
		title = fmt.Sprintf("Crowd: %d wait for one lock at two gateways, over %d connections (%s; %d open files allowed); "+
			"%.0f s idle",
			s.Waiters, s.Connections, s.Protocol, s.OpenFilesMax, s.Idle.Seconds)
	}
	return writeTable(out, title, "figure\tmedian\t(min\tmax)\t", rows)
}

// writeTable leaves out a table without rows: what was not measured.
func writeTable(out io.Writer, title, header string, rows []string) error {
	if len(rows) == 0 {
		return nil
	}
	return bench.WriteTable(out, title, header, rows)
}
