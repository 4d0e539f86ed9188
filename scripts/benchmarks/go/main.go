// Producers over franz-go that send one record at a time with acks=all and wait for its acknowledgement. Prints "begin"
// and "end" when records begin and end to count, and then the microseconds that each record took, one line for each
// record. See small.py.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	recordBytes = 100
	longest     = 60 * time.Second // for one record; the benchmark has failed if it takes longer
)

type producer struct {
	client    *kgo.Client
	partition int32
}

type outcome struct {
	taken []time.Duration
	err   error
}

func main() {
	address := flag.String("address", "", "HOST:PORT of the broker")
	topic := flag.String("topic", "", "the topic to write to")
	partitions := flag.Int("partitions", 1, "how many partitions the topic has")
	connections := flag.Int("connections", 1, "how many producers there are, each with connections of its own")
	warmUp := flag.Duration("warm-up", time.Second, "how long records are sent before they count")
	duration := flag.Duration("duration", time.Second, "how long they count")
	flag.Parse()

	producers, err := connect(*address, *topic, *partitions, *connections)
	if err == nil {
		err = report(measure(producers, *warmUp, *duration))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Make the producers and send the first record of each, so that all are connected and know their topic and producer id.
func connect(address, topic string, partitions, connections int) ([]producer, error) {
	producers := make([]producer, connections)
	for number := range producers {
		client, err := kgo.NewClient(
			kgo.SeedBrokers(address),
			kgo.DefaultProduceTopic(topic),
			kgo.RecordPartitioner(kgo.ManualPartitioner()), // so that each run spreads the producers in the same way
			kgo.RequiredAcks(kgo.AllISRAcks()),
			kgo.ProducerLinger(0),
			kgo.ProducerBatchCompression(kgo.NoCompression()),
		)
		if err != nil {
			return nil, err
		}
		producers[number] = producer{client: client, partition: int32(number % partitions)}
		if err := producers[number].send(); err != nil {
			return nil, err
		}
	}
	return producers, nil
}

func (p producer) send() error {
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	return p.client.ProduceSync(ctx, &kgo.Record{Partition: p.partition, Value: make([]byte, recordBytes)}).FirstErr()
}

// Let all producers send at once, and return the time that each counted record took. A record counts if its sending
// began between the warm-up and the end. So a stall at the end counts in full.
func measure(producers []producer, warmUp, duration time.Duration) ([]time.Duration, error) {
	start := time.Now().Add(warmUp)
	end := start.Add(duration)
	outcomes := make(chan outcome)
	for _, each := range producers {
		go func() { outcomes <- each.sendUntil(start, end) }()
	}
	printAt("begin", start)
	printAt("end", end)
	var taken []time.Duration
	var err error
	for range producers {
		one := <-outcomes
		taken = append(taken, one.taken...)
		err = errors.Join(err, one.err)
	}
	return taken, err
}

// Whoever reads this looks at the broker's processor time at these two moments.
func printAt(mark string, moment time.Time) {
	time.Sleep(time.Until(moment))
	fmt.Println(mark)
}

func (p producer) sendUntil(start, end time.Time) outcome {
	var taken []time.Duration
	for begun := time.Now(); begun.Before(end); begun = time.Now() {
		if err := p.send(); err != nil {
			return outcome{err: err}
		}
		if !begun.Before(start) {
			taken = append(taken, time.Since(begun))
		}
	}
	return outcome{taken: taken}
}

func report(taken []time.Duration, err error) error {
	if err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	for _, each := range taken {
		fmt.Fprintln(out, each.Microseconds())
	}
	return out.Flush()
}
