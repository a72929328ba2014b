package main

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	redisGroup  = "bench"
	redisReader = "one"
	// The library does not cancel a blocked read, so a reader looks up this often.
	redisBlock = 100 * time.Millisecond
)

// redisStream is one stream with one consumer group.
type redisStream struct {
	name   string
	client *redis.Client
}

func openRedis(given task) (*redisStream, error) {
	client := redis.NewClient(&redis.Options{
		Addr: given.Address, PoolSize: given.InFlight + 2*batchCalls, ReadTimeout: callLimit,
	})
	ctx, cancel := limited()
	defer cancel()
	err := client.XGroupCreateMkStream(ctx, given.Queue, redisGroup, "0").Err()
	return &redisStream{given.Queue, client}, err
}

func (r *redisStream) worker() (worker, error) { return r, nil }

func (r *redisStream) push(body []byte) error {
	return r.client.XAdd(context.Background(), r.entry(body)).Err()
}

func (r *redisStream) entry(body []byte) *redis.XAddArgs {
	return &redis.XAddArgs{Stream: r.name, Values: []any{"b", body}}
}

func (r *redisStream) popAck() error {
	for end := time.Now().Add(callLimit); time.Now().Before(end); {
		count, err := r.popAckAll(context.Background(), 1)
		if err != nil || count > 0 {
			return err
		}
	}
	return errEmpty
}

func (r *redisStream) popAckAll(ctx context.Context, limit int64) (int, error) {
	found, err := r.client.XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: redisGroup, Consumer: redisReader, Streams: []string{r.name, ">"},
		Count: limit, Block: redisBlock,
	}).Result()
	if errors.Is(err, redis.Nil) || len(found) == 0 {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	ids := make([]string, len(found[0].Messages))
	for number, message := range found[0].Messages {
		ids[number] = message.ID
	}
	return len(ids), r.client.XAck(context.Background(), r.name, redisGroup, ids...).Err()
}

func (r *redisStream) through(bodies [][]byte, until time.Time) (int64, time.Time, error) {
	push := func() (int, error) {
		_, err := r.client.Pipelined(context.Background(), func(pipe redis.Pipeliner) error {
			for _, body := range bodies {
				pipe.XAdd(context.Background(), r.entry(body))
			}
			return nil
		})
		return len(bodies), err
	}
	pop := func(ctx context.Context) (int, error) { return r.popAckAll(ctx, int64(len(bodies))) }
	return flow(batchCalls, until, push, pop)
}

func (r *redisStream) left() (int64, error) {
	groups, err := r.client.XInfoGroups(context.Background(), r.name).Result()
	if err != nil || len(groups) != 1 {
		return 0, err
	}
	return groups[0].Pending + groups[0].Lag, nil
}

func (r *redisStream) drop() error { return r.client.Del(context.Background(), r.name).Err() }
