package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
)

// moveNamesMax is about how many names move in one transaction. They have no node for as long as that and the one at
// the other node take.
const moveNamesMax = 500

var (
	// errTaken says that another process is sending the same names. It is left to it.
	errTaken = errors.New("another process moves the same names")
	// errKept says that names stay for now.
	errKept = errors.New("transactions keep names locked that are to move; the next attempt takes them")
)

// Move moves the names that are not at the node where the placement has them. Any number of processes may call it at
// once. A node that does not answer, or whose names are locked, delays its own ranges; Move returns their errors after
// it has moved the others.
func (c *Cluster) Move(ctx context.Context) error {
	read := c.current.Load()
	if read == nil {
		return nil
	}
	nodes := c.Nodes()
	nodes[""] = c.engine // it has all names until they are distributed
	return onEach(nodes, func(name string, from *engine.Engine) error {
		if err := c.moveFrom(ctx, read, name, from); err != nil {
			return fmt.Errorf("move names of node %s: %w", name, err)
		}
		return nil
	})
}

// moveFrom moves the names of one node that have another place.
func (c *Cluster) moveFrom(ctx context.Context, read *placement, name string, from *engine.Engine) error {
	ranges, err := from.Ranges(ctx)
	if err != nil {
		return err
	}
	begun := false
	for _, have := range ranges {
		for _, want := range read.ranges {
			first, last := max(have.First, want.first), min(have.Last, want.last)
			if have.MovesTo != "" || first > last || want.node == name {
				continue
			}
			if err := from.BeginMove(ctx, first, last, want.node); err != nil {
				return err
			}
			begun = true
		}
	}
	if begun {
		if ranges, err = from.Ranges(ctx); err != nil {
			return err
		}
	}
	// A move that has begun ends as it began, even if the placement has changed since: part of the names have arrived.
	var failed error
	for _, moving := range ranges {
		if moving.MovesTo == "" {
			continue
		}
		if err := c.moveRange(ctx, from, moving); err != nil && !errors.Is(err, errTaken) {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// moveRange moves the names of a range, or what is left of them, and then the range itself.
func (c *Cluster) moveRange(ctx context.Context, from *engine.Engine, moving store.NameRange) error {
	to, err := c.node(moving.MovesTo)
	if err != nil {
		return err
	}
	if !moving.Sent {
		if err := sendRange(ctx, from, to, moving); err != nil {
			return err
		}
		if err := from.FinishExport(ctx, moving.ID); err != nil {
			return err
		}
	}
	if err := to.TakeRange(ctx, moving); err != nil {
		return err
	}
	return from.EndMove(ctx, moving.ID)
}

// sendRange sends all names of a range, and returns when they have arrived. It returns errKept if some are locked.
func sendRange(ctx context.Context, from, to *engine.Engine, moving store.NameRange) error {
	kept := false
	for after, done := "", false; !done; {
		exported, err := from.ExportTrees(ctx, moving.ID, after, moveNamesMax)
		if err != nil {
			return err
		}
		after, done, kept = exported.After, exported.After == "", kept || exported.Skipped
		// Besides this one, there may be transfers of an attempt that failed, and of other processes.
		transfers, err := from.Transfers(ctx, moving.MovesTo)
		if err != nil {
			return err
		}
		for _, transfer := range transfers {
			if err := send(ctx, from, to, transfer); err != nil {
				return err
			}
		}
	}
	if kept {
		return errKept
	}
	return nil
}

// send sends a transfer, and returns when its names have arrived. It returns errTaken if another process sends it, too.
func send(ctx context.Context, from, to *engine.Engine, transfer uuid.UUID) error {
	sent := 0
	err := from.ReadTransfer(ctx, transfer, func(kinds, items []string) error {
		first := sent == 0
		sent += len(items)
		return to.ImportRows(ctx, transfer, first, kinds, items)
	})
	if err != nil {
		return err
	}
	done, err := to.FinishImport(ctx, transfer, sent)
	switch {
	case err != nil:
		return err
	case !done:
		return errTaken
	}
	return from.EndTransfer(ctx, transfer)
}

// rejectionsAtOnce is how many rejections move in one transaction.
const rejectionsAtOnce = 1000

// MoveRejections moves the rejections by SQL that nodes have recorded to the coordinator, whose lists show them. Any
// number of processes may call it at once. A node that does not answer keeps its own; MoveRejections returns their
// errors after it has moved the others.
func (c *Cluster) MoveRejections(ctx context.Context) error {
	nodes := c.Nodes()
	delete(nodes, store.CoordinatorNode)
	return onEach(nodes, func(name string, from *engine.Engine) error {
		err := from.TakeRejections(ctx, rejectionsAtOnce, func(rows []string) error { return c.engine.MergeRejections(ctx, rows) })
		if err != nil {
			return fmt.Errorf("move rejections of node %s: %w", name, err)
		}
		return nil
	})
}
