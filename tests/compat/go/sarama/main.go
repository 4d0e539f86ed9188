// The agent over sarama (first generation of the transaction protocol). See agents.py.
package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"odradek.tests/agent/agent"

	"github.com/IBM/sarama"
)

const (
	poll    = 100 * time.Millisecond
	backoff = 20 * time.Millisecond
)

type producers map[string]sarama.SyncProducer

func main() {
	producers := producers{}
	agent.Run(producers.perform, kindOf)
}

// sarama has numbers for the protocol's errors, and Go no names for constants.
func kindOf(err error) string {
	names := map[sarama.KError]string{
		sarama.ErrTopicAuthorizationFailed:           "ErrTopicAuthorizationFailed",
		sarama.ErrGroupAuthorizationFailed:           "ErrGroupAuthorizationFailed",
		sarama.ErrClusterAuthorizationFailed:         "ErrClusterAuthorizationFailed",
		sarama.ErrTransactionalIDAuthorizationFailed: "ErrTransactionalIDAuthorizationFailed",
	}
	if number, ok := errors.AsType[sarama.KError](err); ok && names[number] != "" {
		return names[number]
	}
	return "error"
}

func (p producers) perform(words []string) (string, error) {
	name := words[1]
	switch words[0] {
	case "open":
		timeoutMs, err := strconv.Atoi(words[4])
		if err != nil {
			return "", err
		}
		p[name], err = opened(words[2], words[3], time.Duration(timeoutMs)*time.Millisecond)
		return "", err
	case "begin":
		return "", p[name].BeginTxn()
	case "commit":
		return "", p[name].CommitTxn()
	case "abort":
		return "", p[name].AbortTxn()
	case "send":
		partition, err := number(words[3])
		if err != nil {
			return "", err
		}
		_, offset, err := p[name].SendMessage(message(words[2], partition, []byte(words[4])))
		return strconv.FormatInt(offset, 10), err
	case "offsets": // sarama only notes them: it sends them when the transaction is committed
		partition, err := number(words[4])
		if err != nil {
			return "", err
		}
		offset, err := strconv.ParseInt(words[5], 10, 64)
		if err != nil {
			return "", err
		}
		return "", p[name].AddOffsetsToTxn(place(words[3], partition, offset), words[2])
	case "relay":
		return relay(words[1:])
	}
	return "", fmt.Errorf("no command %q", words[0])
}

func number(word string) (int32, error) {
	found, err := strconv.ParseInt(word, 10, 32)
	return int32(found), err
}

func message(topic string, partition int32, value []byte) *sarama.ProducerMessage {
	return &sarama.ProducerMessage{Topic: topic, Partition: partition, Value: sarama.ByteEncoder(value)}
}

func place(topic string, partition int32, offset int64) map[string][]*sarama.PartitionOffsetMetadata {
	return map[string][]*sarama.PartitionOffsetMetadata{topic: {{Partition: partition, Offset: offset}}}
}

func settings() *sarama.Config {
	config := sarama.NewConfig()
	config.Metadata.Retry.Backoff = backoff
	if user := agent.GivenUser(); user != nil {
		config.Net.TLS.Enable, config.Net.TLS.Config = user.TLS != nil, user.TLS
		config.Net.SASL.Enable, config.Net.SASL.Mechanism = user.Mechanism != "", sarama.SASLMechanism(user.Mechanism)
		config.Net.SASL.User, config.Net.SASL.Password = user.Name, user.Password
		config.Net.SASL.TokenProvider = given(user.Token)
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &conversation{mechanism: user.Mechanism} }
	}
	return config
}

// A producer that has initialised its transactions. A refused id is asked for again as often as an absent coordinator.
func opened(bootstrap, transactionalID string, timeout time.Duration) (sarama.SyncProducer, error) {
	config := settings()
	config.Net.MaxOpenRequests = 1
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Retry.Backoff = backoff
	config.Producer.Transaction.ID = transactionalID
	config.Producer.Transaction.Timeout = timeout
	config.Producer.Transaction.Retry.Backoff = backoff
	config.Producer.Transaction.Retry.Max = 10
	return sarama.NewSyncProducer(strings.Split(bootstrap, ","), config)
}

// Consume, transform, produce. Counts as done when the positions of its partitions add up to `count`.
type relayed struct {
	producer        sarama.SyncProducer
	group, instance string
	target          string
	count           int64
	batch           int
	finish          context.CancelCauseFunc

	number, committed, aborted int
	done                       int64
}

var errFinished = errors.New("all is done")

func relay(words []string) (string, error) {
	bootstrap, transactionalID, source := words[0], words[1], words[4]
	count, err := strconv.ParseInt(words[6], 10, 64)
	if err != nil {
		return "", err
	}
	batch, err := strconv.Atoi(words[7])
	if err != nil {
		return "", err
	}
	producer, err := opened(bootstrap, transactionalID, time.Minute)
	if err != nil {
		return "", err
	}
	defer producer.Close()
	ctx, finish := context.WithCancelCause(context.Background())
	relayed := &relayed{
		producer: producer, group: words[2], instance: words[3], target: words[5],
		count: count, batch: batch, finish: finish,
	}
	group, err := sarama.NewConsumerGroup(strings.Split(bootstrap, ","), relayed.group, relayed.settings())
	if err != nil {
		return "", err
	}
	defer group.Close()
	for ctx.Err() == nil { // a rebalance ends a session
		if err := group.Consume(ctx, []string{source}, relayed); err != nil && ctx.Err() == nil {
			return "", err
		}
	}
	if err := context.Cause(ctx); err != errFinished {
		return "", err
	}
	return fmt.Sprintf("%d %d", relayed.committed, relayed.aborted), nil
}

func (r *relayed) settings() *sarama.Config {
	config := settings()
	config.Consumer.Group.InstanceId = r.instance
	config.Consumer.Group.Session.Timeout = 45 * time.Second
	config.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond
	config.Consumer.Group.Rebalance.Retry.Backoff = backoff
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	config.Consumer.MaxWaitTime = 50 * time.Millisecond
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	return config
}

func (r *relayed) Setup(sarama.ConsumerGroupSession) error { return nil }

func (r *relayed) Cleanup(sarama.ConsumerGroupSession) error { return nil }

// The partitions of a relay's source are claimed one after the other: a story has one.
func (r *relayed) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	r.done += max(claim.InitialOffset(), 0)
	for {
		if r.done == r.count {
			r.finish(errFinished)
			return nil
		}
		records, more := r.records(claim)
		if !more {
			return nil
		}
		if len(records) == 0 {
			continue
		}
		if err := r.copy(session, records); err != nil {
			r.finish(err)
			return err
		}
		r.done += int64(len(records))
	}
}

// What came within a poll, at most a batch of it; false if the claim has ended.
func (r *relayed) records(claim sarama.ConsumerGroupClaim) ([]*sarama.ConsumerMessage, bool) {
	var found []*sarama.ConsumerMessage
	late := time.After(poll)
	for len(found) < r.batch {
		select {
		case record, more := <-claim.Messages():
			if !more {
				return nil, false
			}
			found = append(found, record)
		case <-late:
			return found, true
		}
	}
	return found, true
}

// Each batch is one transaction; every third is aborted and done again.
func (r *relayed) copy(session sarama.ConsumerGroupSession, records []*sarama.ConsumerMessage) error {
	r.number++
	if r.number%agent.EveryThird == 0 {
		if err := r.transact(session, records, r.producer.AbortTxn); err != nil {
			return err
		}
		r.aborted++
	}
	if err := r.transact(session, records, r.producer.CommitTxn); err != nil {
		return err
	}
	r.committed++
	fmt.Println("progress", r.committed)
	return nil
}

func (r *relayed) transact(session sarama.ConsumerGroupSession, records []*sarama.ConsumerMessage, end func() error) error {
	if err := r.producer.BeginTxn(); err != nil {
		return err
	}
	made := []*sarama.ProducerMessage{}
	for _, record := range records {
		made = append(made, message(r.target, record.Partition, record.Value))
	}
	if err := r.producer.SendMessages(made); err != nil {
		return err
	}
	last := records[len(records)-1]
	member := sarama.NewConsumerGroupMetadataFromSession(session, r.group, &r.instance)
	next := place(last.Topic, last.Partition, last.Offset+1)
	if err := r.producer.AddOffsetsToTxnWithGroupMetadata(next, member); err != nil {
		return err
	}
	return end()
}
