// Command worker takes messages from a queue until SIGTERM: worker ADDRESS QUEUE [CONCURRENCY].
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"example.com/worker/weftv1"
)

const (
	callLimit = 10 * time.Second
	// A pop waits this long for a message; after SIGTERM the worker waits for its last pop.
	popWait  = time.Second
	pauseMin = 100 * time.Millisecond
	pauseMax = 5 * time.Second
)

// handle is the work of one message: here the body says how many milliseconds it takes.
func handle(message *weftv1.Message) error {
	fields := strings.Fields(string(message.Body))
	if len(fields) != 2 {
		return fmt.Errorf("the body %q is not NAME MILLISECONDS", message.Body)
	}
	ms, err := strconv.Atoi(fields[1])
	if err != nil {
		return err
	}
	time.Sleep(time.Duration(ms) * time.Millisecond)
	fmt.Println("handled", fields[0])
	return nil
}

// retried makes a call until it succeeds or fails for good. Weft says in the trailing metadata
// whether the same call may be made again; an error without it comes from the connection, which
// gRPC opens again by itself.
func retried[Q, R any](
	ctx context.Context, method func(context.Context, *Q, ...grpc.CallOption) (*R, error), request *Q,
) (*R, error) {
	for pause := pauseMin; ; pause = min(2*pause, pauseMax) {
		limited, cancel := context.WithTimeout(ctx, callLimit)
		var trailer metadata.MD
		answer, err := method(limited, request, grpc.Trailer(&trailer))
		cancel()
		if err == nil || !retriable(err, trailer) || ctx.Err() != nil {
			return answer, err
		}
		log.Printf("%v; next attempt in %v", err, pause)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

func retriable(err error, trailer metadata.MD) bool {
	if said := trailer.Get("weft-retriable"); len(said) > 0 {
		return said[0] == "true"
	}
	code := status.Code(err)
	return code == codes.Unavailable || code == codes.DeadlineExceeded
}

type worker struct {
	client  weftv1.QueueClient
	queue   string
	handled atomic.Int64
}

// work handles one message and settles it. A settled message whose answer was lost is settled
// again: that is no error.
func (w *worker) work(message *weftv1.Message) {
	receipts := [][]byte{message.Receipt}
	stop := w.keep(receipts, time.Duration(message.LeaseMs)*time.Millisecond)
	err := handle(message)
	stop()
	if err != nil {
		w.giveBack(receipts, err.Error())
		return
	}
	request := &weftv1.AckRequest{Queue: w.queue, Receipts: receipts}
	settled, err := retried(context.Background(), w.client.Ack, request)
	switch {
	case err != nil:
		log.Printf("%s comes again: %v", message.Id, err)
	case len(settled.Lost) > 0:
		log.Printf("%s comes again: its lease was over", message.Id)
	default:
		w.handled.Add(1)
	}
}

// keep extends the lease until the returned function is called, so that work may take longer.
func (w *worker) keep(receipts [][]byte, lease time.Duration) func() {
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Add(1)
	go func() {
		defer ended.Done()
		for {
			select {
			case <-time.After(lease / 3):
			case <-ctx.Done():
				return
			}
			request := &weftv1.ExtendRequest{
				Queue: w.queue, Receipts: receipts, LeaseMs: lease.Milliseconds(),
			}
			if _, err := retried(ctx, w.client.Extend, request); err != nil && ctx.Err() == nil {
				log.Printf("the lease was not extended: %v", err)
			}
		}
	}()
	return func() { cancel(); ended.Wait() }
}

func (w *worker) giveBack(receipts [][]byte, reason string) {
	request := &weftv1.NackRequest{Queue: w.queue, Receipts: receipts, Reason: reason}
	if _, err := retried(context.Background(), w.client.Nack, request); err != nil {
		log.Printf("%d messages come again when their lease ends: %v", len(receipts), err)
	}
}

// run pops what the workers can take, until the context ends; then it finishes what is in hand and
// gives back the rest.
func (w *worker) run(ctx context.Context, concurrency int) error {
	messages := make(chan *weftv1.Message)
	var workers sync.WaitGroup
	for range concurrency {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for message := range messages {
				w.work(message)
			}
		}()
	}
	defer workers.Wait()
	defer close(messages)
	for ctx.Err() == nil {
		// The pop itself is not cancelled: it might have lent messages that nobody would see.
		popped, err := retried(context.WithoutCancel(ctx), w.client.Pop, &weftv1.PopRequest{
			Queue: w.queue, Limit: int32(concurrency), WaitMs: popWait.Milliseconds(),
		})
		if err != nil {
			return err
		}
		for number, message := range popped.Messages {
			select {
			case messages <- message:
			case <-ctx.Done():
				rest := popped.Messages[number:]
				receipts := make([][]byte, len(rest))
				for i, each := range rest {
					receipts[i] = each.Receipt
				}
				w.giveBack(receipts, "the worker stops")
				fmt.Println("gave back", len(rest))
				return nil
			}
		}
	}
	return nil
}

func main() {
	if len(os.Args) < 3 {
		log.Fatal("usage: worker ADDRESS QUEUE [CONCURRENCY]")
	}
	concurrency := 4
	if len(os.Args) > 3 {
		if given, err := strconv.Atoi(os.Args[3]); err == nil && given > 0 {
			concurrency = given
		}
	}
	wait := backoff.DefaultConfig
	wait.MaxDelay = pauseMax // gRPC's own is two minutes
	connection, err := grpc.NewClient(os.Args[1],
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: wait, MinConnectTimeout: callLimit}))
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	w := &worker{client: weftv1.NewQueueClient(connection), queue: os.Args[2]}
	err = w.run(ctx, concurrency)
	fmt.Println("stopped after", w.handled.Load())
	if err != nil {
		log.Fatal(err)
	}
}
