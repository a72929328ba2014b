package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	rabbitUnconfirmed = 2500
	rabbitPrefetch    = 1000
	rabbitAckEvery    = 200
)

// rabbitQueue is one durable queue with persistent messages and publisher confirms. Publishers and
// the consumer have separate connections, as the library recommends.
type rabbitQueue struct {
	name       string
	publishes  *amqp.Connection
	channel    *amqp.Channel
	deliveries <-chan amqp.Delivery
	producer   *rabbitWorker
}

// rabbitWorker has a channel of its own: confirms of a channel come in the order of its publishes.
type rabbitWorker struct {
	queue   *rabbitQueue
	channel *amqp.Channel
}

func openRabbit(given task) (*rabbitQueue, error) {
	publishes, err := amqp.Dial(given.Address)
	if err != nil {
		return nil, err
	}
	receives, err := amqp.Dial(given.Address)
	if err != nil {
		return nil, err
	}
	channel, err := receives.Channel()
	if err != nil {
		return nil, err
	}
	arguments := amqp.Table{"x-queue-version": 2}
	if given.System == "rabbitmq-quorum" {
		arguments = amqp.Table{"x-queue-type": "quorum"}
	}
	if _, err = channel.QueueDeclare(given.Queue, true, false, false, false, arguments); err != nil {
		return nil, err
	}
	if err = channel.Qos(rabbitPrefetch, 0, false); err != nil {
		return nil, err
	}
	deliveries, err := channel.Consume(given.Queue, "", false, false, false, false, nil)
	if err != nil {
		return nil, err
	}
	made := &rabbitQueue{name: given.Queue, publishes: publishes, channel: channel,
		deliveries: deliveries}
	one, err := made.worker()
	if err == nil {
		made.producer = one.(*rabbitWorker)
	}
	return made, err
}

func (r *rabbitQueue) worker() (worker, error) {
	channel, err := r.publishes.Channel()
	if err != nil {
		return nil, err
	}
	return &rabbitWorker{r, channel}, channel.Confirm(false)
}

func (w *rabbitWorker) publish(body []byte) (*amqp.DeferredConfirmation, error) {
	return w.channel.PublishWithDeferredConfirm("", w.queue.name, false, false,
		amqp.Publishing{DeliveryMode: amqp.Persistent, Body: body})
}

func (w *rabbitWorker) push(body []byte) error {
	confirmation, err := w.publish(body)
	if err != nil {
		return err
	}
	return confirmed(confirmation)
}

func confirmed(confirmation *amqp.DeferredConfirmation) error {
	ctx, cancel := limited()
	defer cancel()
	accepted, err := confirmation.WaitContext(ctx)
	if err == nil && !accepted {
		return errors.New("the server refused a message")
	}
	return err
}

// popAck sends the ack: AMQP has no answer to it.
func (w *rabbitWorker) popAck() error {
	select {
	case delivery := <-w.queue.deliveries:
		return delivery.Ack(false)
	case <-time.After(callLimit):
		return errEmpty
	}
}

func (r *rabbitQueue) through(bodies [][]byte, until time.Time) (int64, time.Time, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	sent, failed := make(chan int64, 1), make(chan error, 1)
	go func() {
		count, err := r.produce(ctx, bodies, until)
		if err != nil {
			failed <- err
			return
		}
		sent <- count
	}()
	var taken int64
	var last amqp.Delivery
	silence := time.NewTicker(callLimit)
	defer silence.Stop()
	total := int64(-1)
	for before := int64(-1); total < 0 || taken < total; {
		select {
		case last = <-r.deliveries:
			taken++
			if taken%rabbitAckEvery == 0 {
				if err := last.Ack(true); err != nil {
					return taken, time.Now(), err
				}
			}
		case total = <-sent:
		case err := <-failed:
			return taken, time.Now(), err
		case <-silence.C:
			if taken == before {
				return taken, time.Now(), fmt.Errorf("nothing came for %v; %d were taken", callLimit, taken)
			}
			before = taken
		}
	}
	if taken%rabbitAckEvery == 0 {
		return taken, time.Now(), nil
	}
	err := last.Ack(true)
	return taken, time.Now(), err
}

// produce keeps a bounded number of publishes unconfirmed, and returns when all are confirmed.
func (r *rabbitQueue) produce(
	ctx context.Context, bodies [][]byte, until time.Time,
) (int64, error) {
	var count int64
	waiting := make([]*amqp.DeferredConfirmation, 0, rabbitUnconfirmed)
	for time.Now().Before(until) && ctx.Err() == nil {
		for _, body := range bodies {
			if len(waiting) == rabbitUnconfirmed {
				half := rabbitUnconfirmed / 2
				for _, each := range waiting[:half] {
					if err := confirmed(each); err != nil {
						return count, err
					}
				}
				waiting = append(waiting[:0], waiting[half:]...)
			}
			confirmation, err := r.producer.publish(body)
			if err != nil {
				return count, err
			}
			waiting = append(waiting, confirmation)
			count++
		}
	}
	for _, each := range waiting {
		if err := confirmed(each); err != nil {
			return count, err
		}
	}
	return count, nil
}

// left counts ready messages. A passive declare on the channel of the acks is answered after them.
func (r *rabbitQueue) left() (int64, error) {
	found, err := r.channel.QueueDeclarePassive(r.name, true, false, false, false, nil)
	return int64(found.Messages), err
}

func (r *rabbitQueue) drop() error {
	_, err := r.channel.QueueDelete(r.name, false, false, false)
	return err
}
