package main

import (
	"crypto/rand"
	"fmt"
	"sort"
	"sync"
	"time"
)

// A system is a queue of one broker, through the fastest way that its library documents.
type system interface {
	// worker returns one of several concurrent users of the queue.
	worker() (worker, error)
	// through pushes batches until the given time, and pops and acks all of them at the same time.
	// It returns their number, and when the last was acked.
	through(bodies [][]byte, until time.Time) (int64, time.Time, error)
	// left counts messages that are not acked.
	left() (int64, error)
	drop() error
}

// A worker makes one call at a time; every call returns when the server has confirmed.
type worker interface {
	push(body []byte) error
	popAck() error
}

// single has InFlight workers, and each pushes one message, pops one and acks it.
type single struct {
	system  system
	workers []worker
	body    []byte
}

func openSingle(given task, opened system) (*single, error) {
	made := &single{system: opened, body: bodies(1, given.Size)[0]}
	for range given.InFlight {
		one, err := opened.worker()
		if err != nil {
			return nil, err
		}
		made.workers = append(made.workers, one)
	}
	return made, nil
}

func (s *single) run(until time.Time) (result, error) {
	samples, err := together(len(s.workers), func(number int) ([]time.Duration, error) {
		var taken []time.Duration
		for time.Now().Before(until) {
			began := time.Now()
			if err := s.workers[number].push(s.body); err != nil {
				return nil, fmt.Errorf("push: %w", err)
			}
			taken = append(taken, time.Since(began))
			if err := s.workers[number].popAck(); err != nil {
				return nil, fmt.Errorf("pop and ack: %w", err)
			}
		}
		return taken, nil
	})
	// A push, a pop and an ack.
	return summary(samples, 3), err
}

func (s *single) finish() error { return finished(s.system) }

// batches moves whole batches, pushing and popping at the same time.
type batches struct {
	system system
	bodies [][]byte
}

func (b *batches) run(until time.Time) (result, error) {
	began := time.Now()
	count, ended, err := b.system.through(b.bodies, until)
	return result{Messages: count, Seconds: ended.Sub(began).Seconds()}, err
}

func (b *batches) finish() error { return finished(b.system) }

func finished(used system) error {
	left, err := used.left()
	if err != nil {
		return err
	}
	if left != 0 {
		return fmt.Errorf("%d messages are left, though all were acked", left)
	}
	return used.drop()
}

// together runs several workers at once, and returns all samples or the first error.
func together(
	count int, work func(number int) ([]time.Duration, error),
) ([]time.Duration, error) {
	var guard sync.Mutex
	var group sync.WaitGroup
	var all []time.Duration
	var failure error
	for number := range count {
		group.Add(1)
		go func() {
			defer group.Done()
			taken, err := work(number)
			guard.Lock()
			defer guard.Unlock()
			all = append(all, taken...)
			if failure == nil {
				failure = err
			}
		}()
	}
	group.Wait()
	return all, failure
}

func summary(samples []time.Duration, callsPerMessage int64) result {
	count := int64(len(samples))
	if count == 0 {
		return result{}
	}
	sort.Slice(samples, func(i, j int) bool { return samples[i] < samples[j] })
	at := func(share float64) float64 {
		return float64(samples[int(share*float64(count-1))].Nanoseconds()) / 1e3
	}
	return result{
		Messages: count, Calls: count * callsPerMessage, P50us: at(0.5), P99us: at(0.99),
	}
}

func bodies(count, size int) [][]byte {
	made := make([][]byte, count)
	for number := range made {
		made[number] = make([]byte, size)
		if _, err := rand.Read(made[number]); err != nil {
			panic(err)
		}
	}
	return made
}
