package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"weft.invalid/bench/weftv1"
)

const (
	receiveMax = 16 << 20
	callLimit  = 60 * time.Second
	waitMs     = 10_000
	// Calls under way on each side of a batch workload: while one waits for the disk, others are
	// encoded and decoded.
	batchCalls = 8
)

var errEmpty = errors.New("no message came, though one was pushed")

type weft struct {
	queue  string
	client weftv1.QueueClient
	// Batches are popped over a second connection, as a second program would.
	consumer weftv1.QueueClient
	producer uint64
	batch    atomic.Uint64
}

func dial(address string) (*grpc.ClientConn, error) {
	return grpc.NewClient(address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(receiveMax)))
}

func limited() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), callLimit)
}

func openWeft(given task) (*weft, error) {
	first, err := dial(given.Address)
	if err != nil {
		return nil, err
	}
	second, err := dial(given.Address)
	if err != nil {
		return nil, err
	}
	made := &weft{
		queue: given.Queue, client: weftv1.NewQueueClient(first),
		consumer: weftv1.NewQueueClient(second), producer: rand.Uint64N(1 << 56),
	}
	ctx, cancel := limited()
	defer cancel()
	_, err = made.client.CreateQueue(ctx, &weftv1.CreateQueueRequest{Queue: given.Queue})
	return made, err
}

func (w *weft) worker() (worker, error) { return w, nil }

func (w *weft) push(body []byte) error {
	return w.pushAll([]*weftv1.OutMessage{{Body: body}})
}

// pushAll names the push, as a producer that retries does.
func (w *weft) pushAll(messages []*weftv1.OutMessage) error {
	ctx, cancel := limited()
	defer cancel()
	_, err := w.client.Push(ctx, &weftv1.PushRequest{
		Queue: w.queue, Messages: messages,
		Producer: proto.Uint64(w.producer), Batch: proto.Uint64(w.batch.Add(1)),
	})
	return err
}

func (w *weft) popAck() error {
	count, err := w.popAckAll(context.Background(), 1)
	if err == nil && count == 0 {
		return errEmpty
	}
	return err
}

func (w *weft) popAckAll(within context.Context, limit int32) (int, error) {
	ctx, cancel := context.WithTimeout(within, callLimit)
	defer cancel()
	popped, err := w.consumer.Pop(ctx, &weftv1.PopRequest{
		Queue: w.queue, Limit: limit, WaitMs: waitMs, MaxBytes: receiveMax,
	})
	if err != nil || len(popped.Messages) == 0 {
		return 0, err
	}
	receipts := make([][]byte, len(popped.Messages))
	for number, message := range popped.Messages {
		receipts[number] = message.Receipt
	}
	settled, err := w.consumer.Ack(ctx, &weftv1.AckRequest{Queue: w.queue, Receipts: receipts})
	if err == nil && int(settled.Done) != len(receipts) {
		return 0, fmt.Errorf("of %d messages %d were acked, %d were acked before, %d are lost",
			len(receipts), settled.Done, settled.Already, len(settled.Lost))
	}
	return len(receipts), err
}

func (w *weft) through(bodies [][]byte, until time.Time) (int64, time.Time, error) {
	messages := make([]*weftv1.OutMessage, len(bodies))
	for number, body := range bodies {
		messages[number] = &weftv1.OutMessage{Body: body}
	}
	push := func() (int, error) { return len(messages), w.pushAll(messages) }
	pop := func(ctx context.Context) (int, error) { return w.popAckAll(ctx, int32(len(messages))) }
	return flow(batchCalls, until, push, pop)
}

// flow runs pushes until the given time and pops until as much is popped as was pushed; then it
// cancels the pops that still wait. It returns when the last message was acked: a library may take
// longer to cancel.
func flow(
	calls int, until time.Time, push func() (int, error),
	pop func(context.Context) (int, error),
) (int64, time.Time, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var ended time.Time
	var end sync.Once
	var pushed, popped, pushing atomic.Int64
	pushing.Store(int64(calls))
	check := func() {
		if pushing.Load() == 0 && popped.Load() >= pushed.Load() {
			end.Do(func() { ended = time.Now() })
			cancel()
		}
	}
	_, err := together(2*calls, func(number int) ([]time.Duration, error) {
		defer check()
		if number < calls {
			defer pushing.Add(-1)
			for time.Now().Before(until) {
				count, err := push()
				if err != nil {
					cancel()
					return nil, err
				}
				pushed.Add(int64(count))
			}
			return nil, nil
		}
		for ctx.Err() == nil {
			count, err := pop(ctx)
			if err != nil && ctx.Err() == nil {
				cancel()
				return nil, err
			}
			popped.Add(int64(count))
			check()
		}
		return nil, nil
	})
	return popped.Load(), ended, err
}

func (w *weft) left() (int64, error) {
	ctx, cancel := limited()
	defer cancel()
	found, err := w.client.DescribeQueue(ctx, &weftv1.DescribeQueueRequest{Queue: w.queue})
	return found.GetReady() + found.GetLeased(), err
}

func (w *weft) drop() error {
	ctx, cancel := limited()
	defer cancel()
	_, err := w.client.DeleteQueue(ctx, &weftv1.DeleteQueueRequest{Queue: w.queue})
	return err
}
