// Command bench is the Go side of `python -m bench.languages`: one process is one measurement.
//
// The driver passes a task as JSON. The program connects, warms up, prints {"ready":true}, waits
// for a line, works for the given time and prints the result as one line of JSON. `bench serve`
// instead runs Go's own gRPC server, for the cost of an empty call.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"syscall"
	"time"
)

// A task says what to measure, and where.
type task struct {
	System   string  `json:"system"`
	Workload string  `json:"workload"`
	Address  string  `json:"address"`
	Queue    string  `json:"queue"`
	Seconds  float64 `json:"seconds"`
	InFlight int     `json:"in_flight"`
	Size     int     `json:"size"`
	Batch    int     `json:"batch"`
	Method   string  `json:"method"`
	Named    bool    `json:"named"`
}

// A result counts what was confirmed, in the seconds that it took.
type result struct {
	Messages  int64   `json:"messages"`
	Calls     int64   `json:"calls"`
	Seconds   float64 `json:"seconds"`
	P50us     float64 `json:"p50_us"`
	P99us     float64 `json:"p99_us"`
	ClientCPU float64 `json:"client_cpu_s"`
}

// A workload warms up with the first call of run and is measured by the second.
type workload interface {
	run(until time.Time) (result, error)
	// finish checks that the queue is empty and removes the queue.
	finish() error
}

const warmUp = 300 * time.Millisecond

func main() {
	if err := command(); err != nil {
		say(map[string]any{"error": map[string]string{"message": err.Error()}})
		os.Exit(1)
	}
}

func command() error {
	if len(os.Args) == 2 && os.Args[1] == "serve" {
		return serve()
	}
	if len(os.Args) != 2 {
		return fmt.Errorf("usage: bench TASK, where TASK is JSON, or bench serve")
	}
	var given task
	if err := json.Unmarshal([]byte(os.Args[1]), &given); err != nil {
		return fmt.Errorf("the task is not JSON: %w", err)
	}
	work, err := open(given)
	if err != nil {
		return err
	}
	if _, err = work.run(time.Now().Add(warmUp)); err != nil {
		return err
	}
	say(map[string]bool{"ready": true})
	if _, err = bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return fmt.Errorf("the driver is gone: %w", err)
	}
	cpu, began := cpuSeconds(), time.Now()
	measured, err := work.run(began.Add(time.Duration(given.Seconds * float64(time.Second))))
	if err != nil {
		return err
	}
	if measured.Seconds == 0 {
		measured.Seconds = time.Since(began).Seconds()
	}
	measured.ClientCPU = cpuSeconds() - cpu
	if err = work.finish(); err != nil {
		return err
	}
	say(measured)
	return nil
}

func open(given task) (workload, error) {
	switch given.Workload {
	case "empty":
		return openEmpty(given)
	case "columns":
		return openColumns(given)
	case "produce", "work":
		return openStream(given)
	}
	var opened system
	var err error
	switch given.System {
	case "weft":
		opened, err = openWeft(given)
	case "nats":
		opened, err = openNats(given)
	case "redis":
		opened, err = openRedis(given)
	case "rabbitmq-classic", "rabbitmq-quorum":
		opened, err = openRabbit(given)
	default:
		return nil, fmt.Errorf("%q is no system", given.System)
	}
	if err != nil {
		return nil, err
	}
	switch given.Workload {
	case "single":
		return openSingle(given, opened)
	case "batch":
		return &batches{opened, bodies(given.Batch, given.Size)}, nil
	}
	return nil, fmt.Errorf("%q is no workload", given.Workload)
}

func say(what any) {
	line, err := json.Marshal(what)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}

func cpuSeconds() float64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0
	}
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9
}
