package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/protobuf/proto"

	"weft.invalid/bench/weftv1"
)

const (
	// Single messages under way on a Produce stream.
	produceWindow = 4096
	// Messages that a Work stream may hold.
	workCredit = 1024
	// Messages that wait for the Work streams of a trial and a measurement.
	workBacklog = 2_000_000
)

// stream measures the two streams of single messages, Produce and Work.
type stream struct {
	*weft
	bodies [][]byte
	named  bool
	action func(until time.Time) (result, error)
}

func openStream(given task) (workload, error) {
	if given.System != "weft" {
		return nil, fmt.Errorf("%s has no workload %s", given.System, given.Workload)
	}
	opened, err := openWeft(given)
	if err != nil {
		return nil, err
	}
	made := &stream{weft: opened, bodies: bodies(given.Batch, given.Size), named: given.Named}
	switch given.Workload {
	case "produce":
		made.action = made.produce
	case "work":
		made.action = made.work
		err = made.fill()
	}
	return made, err
}

func (s *stream) run(until time.Time) (result, error) { return s.action(until) }

// finish drops the queue with what a producer left in it.
func (s *stream) finish() error { return s.drop() }

// produce sends single messages, at most produceWindow without a receipt. A producer that names its
// messages may send them again on another stream; the node stores those of another one together.
func (s *stream) produce(until time.Time) (result, error) {
	ctx, cancel := context.WithDeadline(context.Background(), until.Add(callLimit))
	defer cancel()
	opened, err := s.client.Produce(ctx)
	if err != nil {
		return result{}, err
	}
	window := make(chan struct{}, produceWindow)
	failed := make(chan error, 1)
	go func() {
		failed <- func() error {
			for time.Now().Before(until) {
				select {
				case window <- struct{}{}:
				case <-ctx.Done():
					return ctx.Err()
				}
				request := &weftv1.ProduceRequest{
					Queue: s.queue,
					Content: &weftv1.ProduceRequest_Message{
						Message: &weftv1.OutMessage{Body: s.bodies[0]},
					},
				}
				if s.named {
					request.Producer = proto.Uint64(s.producer)
					request.Batch = proto.Uint64(s.batch.Add(1))
				}
				if err := opened.Send(request); err != nil {
					return err
				}
			}
			return opened.CloseSend()
		}()
	}()
	var count int64
	for {
		answer, err := opened.Recv()
		if err != nil {
			// Send reports the end of a stream as io.EOF; Recv has the reason.
			if sent := <-failed; sent != nil && !errors.Is(sent, io.EOF) {
				return result{}, sent
			}
			if errors.Is(err, io.EOF) && len(window) == 0 {
				err = nil // the end of the stream, after all receipts
			}
			return result{Messages: count, Calls: count}, err
		}
		for _, receipt := range answer.Receipts {
			if receipt.Refusal != nil {
				return result{}, errors.New(receipt.Refusal.Message)
			}
			count += int64(receipt.Count)
			<-window
		}
	}
}

func (s *stream) fill() error {
	messages := make([]*weftv1.OutMessage, len(s.bodies))
	for number, body := range s.bodies {
		messages[number] = &weftv1.OutMessage{Body: body}
	}
	for range workBacklog / len(s.bodies) {
		if err := s.pushAll(messages); err != nil {
			return err
		}
	}
	return nil
}

// work acks every message by itself; the acks of one delivery travel together.
func (s *stream) work(until time.Time) (result, error) {
	// A stream that has emptied the queue ends at its deadline.
	ctx, cancel := context.WithDeadline(context.Background(), until)
	defer cancel()
	opened, err := s.consumer.Work(ctx)
	if err != nil {
		return result{}, err
	}
	open := &weftv1.WorkRequest{Open: &weftv1.WorkOpen{Queue: s.queue}, Credit: workCredit}
	if err := opened.Send(open); err != nil {
		return result{}, err
	}
	var count, tag int64
	for {
		answer, err := opened.Recv()
		if ctx.Err() != nil {
			return result{Messages: count}, nil
		}
		if err != nil {
			return result{}, err
		}
		for _, confirmation := range answer.Confirmations {
			if confirmation.Refusal != nil {
				return result{}, errors.New(confirmation.Refusal.Message)
			}
			count += confirmation.Done
		}
		if len(answer.Messages) == 0 {
			continue
		}
		next := &weftv1.WorkRequest{Credit: uint32(len(answer.Messages))}
		for _, message := range answer.Messages {
			tag++
			next.Settles = append(next.Settles, &weftv1.Settle{
				Action: weftv1.Settle_ACK, Tag: uint64(tag), Receipts: [][]byte{message.Receipt},
			})
		}
		if err := opened.Send(next); err != nil && ctx.Err() == nil {
			return result{}, err
		}
	}
}
