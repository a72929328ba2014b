package main

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"weft.invalid/bench/weftv1"
)

// columns is the batch workload with one value for each batch.
type columns struct {
	*weft
	bodies [][]byte
}

func openColumns(given task) (workload, error) {
	if given.System != "weft" {
		return nil, fmt.Errorf("%s has no batches by column", given.System)
	}
	opened, err := openWeft(given)
	return &columns{opened, bodies(given.Batch, given.Size)}, err
}

func (c *columns) run(until time.Time) (result, error) {
	push := func() (int, error) { return len(c.bodies), c.pushColumns() }
	began := time.Now()
	count, ended, err := flow(batchCalls, until, push, c.popColumns)
	return result{Messages: count, Seconds: ended.Sub(began).Seconds()}, err
}

func (c *columns) finish() error { return finished(c) }

func (c *columns) pushColumns() error {
	ctx, cancel := limited()
	defer cancel()
	_, err := c.client.PushBatch(ctx, &weftv1.PushBatchRequest{
		Queue: c.queue, Messages: &weftv1.Columns{Bodies: c.bodies},
		Producer: proto.Uint64(c.producer), Batch: proto.Uint64(c.batch.Add(1)),
	})
	return err
}

func (c *columns) popColumns(within context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(within, callLimit)
	defer cancel()
	popped, err := c.consumer.PopBatches(ctx, &weftv1.PopBatchesRequest{
		Queue: c.queue, Limit: int32(len(c.bodies)), WaitMs: waitMs, MaxBytes: receiveMax,
	})
	if err != nil || len(popped.Lots) == 0 {
		return 0, err
	}
	count, parts := 0, make([]*weftv1.LotPart, len(popped.Lots))
	for number, lot := range popped.Lots {
		count += len(lot.Messages.Bodies)
		parts[number] = &weftv1.LotPart{Receipt: lot.Receipt}
	}
	settled, err := c.consumer.AckBatches(ctx, &weftv1.AckBatchesRequest{
		Queue: c.queue, Lots: parts,
	})
	if err == nil && int(settled.Done) != count {
		return 0, fmt.Errorf("of %d messages %d were acked, %d were acked before, %d are lost",
			count, settled.Done, settled.Already, len(settled.Lost))
	}
	return count, err
}
