package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// The library's own default of unconfirmed publishes.
	natsUnconfirmed = 4000
	natsUnacked     = 8000
	// One ack covers all messages before it (AckPolicy all).
	natsAckEvery = 1000
	natsSilence  = 30 * time.Second
	// A plain ack is processed in this time.
	natsSettle = 5 * time.Second
)

// natsQueue is one JetStream stream on files. Consume, which keeps pulls ahead of the messages, is
// the library's fastest way to receive.
type natsQueue struct {
	name   string
	stream jetstream.JetStream
	queue  jetstream.Stream
	single bool
	ready  chan jetstream.Msg
	stop   func()
}

func openNats(given task) (*natsQueue, error) {
	publishes, err := nats.Connect(given.Address)
	if err != nil {
		return nil, err
	}
	receives, err := nats.Connect(given.Address)
	if err != nil {
		return nil, err
	}
	stream, err := jetstream.New(publishes, jetstream.WithPublishAsyncMaxPending(natsUnconfirmed))
	if err != nil {
		return nil, err
	}
	taking, err := jetstream.New(receives)
	if err != nil {
		return nil, err
	}
	ctx, cancel := limited()
	defer cancel()
	if _, err = stream.CreateStream(ctx, jetstream.StreamConfig{
		Name: given.Queue, Subjects: []string{given.Queue}, Storage: jetstream.FileStorage,
	}); err != nil {
		return nil, err
	}
	queue, err := taking.Stream(ctx, given.Queue)
	if err != nil {
		return nil, err
	}
	made := &natsQueue{
		name: given.Queue, stream: stream, queue: queue, single: given.Workload == "single",
		ready: make(chan jetstream.Msg, natsUnacked),
	}
	return made, made.consume(ctx)
}

func (n *natsQueue) consume(ctx context.Context) error {
	policy := jetstream.AckAllPolicy
	if n.single {
		policy = jetstream.AckExplicitPolicy
	}
	consumer, err := n.queue.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: "bench", AckPolicy: policy, MaxAckPending: natsUnacked,
	})
	if err != nil {
		return err
	}
	running, err := consumer.Consume(
		func(message jetstream.Msg) { n.ready <- message },
		jetstream.PullMaxMessages(natsUnacked/2),
	)
	if err == nil {
		n.stop = running.Stop
	}
	return err
}

func (n *natsQueue) worker() (worker, error) { return n, nil }

func (n *natsQueue) push(body []byte) error {
	ctx, cancel := limited()
	defer cancel()
	_, err := n.stream.Publish(ctx, n.name, body)
	return err
}

func (n *natsQueue) popAck() error {
	ctx, cancel := limited()
	defer cancel()
	select {
	case message := <-n.ready:
		return message.DoubleAck(ctx)
	case <-ctx.Done():
		return errEmpty
	}
}

func (n *natsQueue) through(bodies [][]byte, until time.Time) (int64, time.Time, error) {
	sent := make(chan int64, 1)
	failed := make(chan error, 1)
	go func() {
		count, err := n.publish(bodies, until)
		if err != nil {
			failed <- err
			return
		}
		sent <- count
	}()
	var taken int64
	total := int64(-1)
	var last jetstream.Msg
	silence := time.NewTicker(natsSilence)
	defer silence.Stop()
	for before := int64(-1); total < 0 || taken < total; {
		select {
		case last = <-n.ready:
			taken++
			if taken%natsAckEvery == 0 {
				if err := last.Ack(); err != nil {
					return taken, time.Now(), err
				}
			}
		case total = <-sent:
		case err := <-failed:
			return taken, time.Now(), err
		case <-silence.C:
			if taken == before {
				return taken, time.Now(), fmt.Errorf("nothing came for %v; %d were taken", natsSilence, taken)
			}
			before = taken
		}
	}
	if taken%natsAckEvery == 0 {
		return taken, time.Now(), nil // the last message is acked
	}
	ctx, cancel := limited()
	defer cancel()
	err := last.DoubleAck(ctx)
	return taken, time.Now(), err
}

// publish returns when every message is confirmed.
func (n *natsQueue) publish(bodies [][]byte, until time.Time) (int64, error) {
	var count int64
	for time.Now().Before(until) {
		for _, body := range bodies {
			if _, err := n.stream.PublishAsync(n.name, body); err != nil {
				return count, err
			}
			count++
		}
	}
	select {
	case <-n.stream.PublishAsyncComplete():
		return count, nil
	case <-time.After(callLimit):
		return count, errors.New("publishes were not confirmed in time")
	}
}

// left waits for a plain ack, which the server takes without an answer.
func (n *natsQueue) left() (int64, error) {
	ctx, cancel := limited()
	defer cancel()
	info, err := n.queue.Info(ctx)
	if err != nil {
		return 0, err
	}
	consumer, err := n.queue.Consumer(ctx, "bench")
	if err != nil {
		return 0, err
	}
	for end := time.Now().Add(natsSettle); ; time.Sleep(natsSettle / 100) {
		state, err := consumer.Info(ctx)
		if err != nil {
			return 0, err
		}
		left := int64(info.State.LastSeq - state.AckFloor.Stream)
		if left == 0 || time.Now().After(end) {
			return left, nil
		}
	}
}

func (n *natsQueue) drop() error {
	n.stop()
	ctx, cancel := limited()
	defer cancel()
	return n.stream.DeleteStream(ctx, n.name)
}
