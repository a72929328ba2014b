package main

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"weft.invalid/bench/weftv1"
)

// empty makes unary calls that do no work: what a call itself costs.
type empty struct {
	inFlight int
	call     func(context.Context) error
}

func openEmpty(given task) (*empty, error) {
	connection, err := dial(given.Address)
	if err != nil {
		return nil, err
	}
	checks, cluster := healthv1.NewHealthClient(connection), weftv1.NewClusterClient(connection)
	calls := map[string]func(context.Context) error{
		"health": func(ctx context.Context) error {
			_, err := checks.Check(ctx, &healthv1.HealthCheckRequest{})
			return err
		},
		"view": func(ctx context.Context) error {
			_, err := cluster.View(ctx, &weftv1.ViewRequest{})
			return err
		},
	}
	call, known := calls[given.Method]
	if !known {
		return nil, fmt.Errorf("%q is no empty call", given.Method)
	}
	return &empty{given.InFlight, call}, nil
}

func (e *empty) run(until time.Time) (result, error) {
	ctx, cancel := context.WithDeadline(context.Background(), until.Add(callLimit))
	defer cancel()
	samples, err := together(e.inFlight, func(int) ([]time.Duration, error) {
		var taken []time.Duration
		for began := time.Now(); began.Before(until); {
			if err := e.call(ctx); err != nil {
				return nil, err
			}
			ended := time.Now()
			taken = append(taken, ended.Sub(began))
			began = ended
		}
		return taken, nil
	})
	return summary(samples, 1), err
}

func (e *empty) finish() error { return nil }

// view answers as a node of one member does.
type view struct {
	weftv1.UnimplementedClusterServer
}

func (view) View(context.Context, *weftv1.ViewRequest) (*weftv1.ViewResponse, error) {
	return &weftv1.ViewResponse{
		Cluster: "bench", Version: 1, Partitions: 256, Primaries: make([]uint32, 256),
		Nodes: []*weftv1.Node{{Id: "n1", Grpc: "127.0.0.1:7700", State: "active", Alive: true}},
	}, nil
}

// serve runs Go's own gRPC server with the same two methods, and prints its address.
func serve() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	healthv1.RegisterHealthServer(server, health.NewServer())
	weftv1.RegisterClusterServer(server, view{})
	say(map[string]string{"address": listener.Addr().String()})
	return server.Serve(listener)
}
