// The agent over franz-go (second generation of the transaction protocol). See agents.py.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"odradek.tests/agent/agent"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const (
	poll    = 100 * time.Millisecond
	longest = 30 * time.Second
)

type producers map[string]*kgo.Client

func main() {
	producers := producers{}
	agent.Run(producers.perform, kindOf)
}

func kindOf(err error) string {
	if known, ok := errors.AsType[*kerr.Error](err); ok {
		return known.Message
	}
	return "Error"
}

func (p producers) perform(words []string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*longest)
	defer cancel()
	name := words[1]
	switch words[0] {
	case "open":
		timeoutMs, err := strconv.Atoi(words[4])
		if err != nil {
			return "", err
		}
		client, err := kgo.NewClient(transactional(words[2], words[3], timeoutMs)...)
		if err != nil {
			return "", err
		}
		p[name] = client
		_, _, err = client.ProducerID(ctx) // initialises its transactions; by itself it would wait until they begin
		return "", err
	case "begin":
		return "", p[name].BeginTransaction()
	case "commit":
		return "", p.end(ctx, name, kgo.TryCommit)
	case "abort":
		return "", p.end(ctx, name, kgo.TryAbort)
	case "send":
		partition, err := strconv.Atoi(words[3])
		if err != nil {
			return "", err
		}
		record := &kgo.Record{Topic: words[2], Partition: int32(partition), Value: []byte(words[4])}
		sent, err := p[name].ProduceSync(ctx, record).First()
		if err != nil {
			return "", err
		}
		return strconv.FormatInt(sent.Offset, 10), nil
	case "offsets":
		return "", p.commitOffset(ctx, name, words[2:])
	case "relay":
		return relay(words[1:])
	}
	return "", fmt.Errorf("no command %q", words[0])
}

func (p producers) end(ctx context.Context, name string, how kgo.TransactionEndTry) error {
	if err := p[name].Flush(ctx); err != nil {
		return err
	}
	return p[name].EndTransaction(ctx, how)
}

// A client without a group has no call for this: the request is made by hand, in the version that
// needs no AddOffsetsToTxn before it.
func (p producers) commitOffset(ctx context.Context, name string, words []string) error {
	partition, err := strconv.ParseInt(words[2], 10, 32)
	if err != nil {
		return err
	}
	offset, err := strconv.ParseInt(words[3], 10, 64)
	if err != nil {
		return err
	}
	client := p[name]
	request := kmsg.NewTxnOffsetCommitRequest()
	request.TransactionalID = client.OptValue(kgo.TransactionalID).(string)
	request.Group = words[0]
	request.ProducerID, request.ProducerEpoch, err = client.ProducerID(ctx)
	if err != nil {
		return err
	}
	place := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	place.Partition, place.Offset = int32(partition), offset
	request.Topics = []kmsg.TxnOffsetCommitRequestTopic{
		{Topic: words[1], Partitions: []kmsg.TxnOffsetCommitRequestTopicPartition{place}},
	}
	response, err := request.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(response.Topics[0].Partitions[0].ErrorCode)
}

func transactional(bootstrap, transactionalID string, timeoutMs int) []kgo.Opt {
	return append(secured(), []kgo.Opt{
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.TransactionalID(transactionalID),
		kgo.TransactionTimeout(time.Duration(timeoutMs) * time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0),
		kgo.ProducerBatchCompression(kgo.NoCompression()), // so that logs of one story are of one size
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }), // a broker that died is soon back
		kgo.RequestRetries(500),
	}...)
}

func secured() []kgo.Opt {
	user := agent.GivenUser()
	if user == nil {
		return nil
	}
	var options []kgo.Opt
	if user.TLS != nil {
		options = append(options, kgo.DialTLSConfig(user.TLS))
	}
	if user.Mechanism != "" {
		options = append(options, kgo.SASL(mechanism(user)))
	}
	return options
}

func mechanism(user *agent.User) sasl.Mechanism {
	switch user.Mechanism {
	case "PLAIN":
		return plain.Auth{User: user.Name, Pass: user.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: user.Name, Pass: user.Password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: user.Name, Pass: user.Password}.AsSha512Mechanism()
	case "OAUTHBEARER":
		return oauth.Auth{Token: user.Token}.AsMechanism()
	}
	panic("no mechanism " + user.Mechanism)
}

// Consume, transform, produce: each poll is one transaction, every third is aborted and done again.
func relay(words []string) (string, error) {
	bootstrap, transactionalID, group, instance, source, target := words[0], words[1], words[2], words[3], words[4], words[5]
	count, err := strconv.ParseInt(words[6], 10, 64)
	if err != nil {
		return "", err
	}
	batch, err := strconv.Atoi(words[7])
	if err != nil {
		return "", err
	}
	options := transactional(bootstrap, transactionalID, 60_000)
	if os.Getenv("FRANZ_GO_848") != "" { // the new group protocol, with one of the balancers that the broker has, too
		options = append(options, kgo.ServerSideBalancer(), kgo.Balancers(kgo.RangeBalancer()))
	}
	session, err := kgo.NewGroupTransactSession(append(options,
		kgo.ConsumerGroup(group),
		kgo.InstanceID(instance),
		kgo.ConsumeTopics(source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.SessionTimeout(45*time.Second),
		kgo.HeartbeatInterval(300*time.Millisecond),
		kgo.FetchMaxWait(50*time.Millisecond),
	)...)
	if err != nil {
		return "", err
	}
	defer session.Close()
	// By itself it would initialise its transactions only when it has something to send; the group's offsets, which
	// it needs first, are not stable until the transaction that a predecessor left open is aborted by that.
	if _, _, err := session.Client().ProducerID(context.Background()); err != nil {
		return "", err
	}
	number, committed, aborted := 0, 0, 0
	for !isDone(session.Client(), count) {
		records, err := records(session, batch)
		if err != nil {
			return "", err
		}
		if len(records) == 0 {
			continue
		}
		number++
		ended, err := transact(session, records, target, kgo.TransactionEndTry(number%agent.EveryThird != 0))
		if err != nil {
			return "", err
		}
		if ended {
			committed++
			fmt.Println("progress", committed)
		} else {
			aborted++
		}
	}
	return fmt.Sprintf("%d %d", committed, aborted), nil
}

// Whether all has been done: the source holds plain records only, from offset 0 on.
func isDone(client *kgo.Client, count int64) bool {
	done := int64(0)
	for _, partitions := range client.CommittedOffsets() {
		for _, place := range partitions {
			done += max(place.Offset, 0)
		}
	}
	return done == count
}

func records(session *kgo.GroupTransactSession, batch int) ([]*kgo.Record, error) {
	ctx, cancel := context.WithTimeout(context.Background(), poll)
	defer cancel()
	fetches := session.PollRecords(ctx, batch)
	for _, failed := range fetches.Errors() {
		_, joinsAgain := errors.AsType[*kgo.ErrGroupSession](failed.Err)
		refused := errors.Is(failed.Err, kerr.FencedInstanceID) || errors.Is(failed.Err, kerr.GroupAuthorizationFailed)
		_, isDown := errors.AsType[*net.OpError](failed.Err) // the broker is being started again
		isTransient := joinsAgain || isDown || errors.Is(failed.Err, context.DeadlineExceeded) || kerr.IsRetriable(failed.Err)
		if refused || !isTransient {
			return nil, failed.Err
		}
	}
	return fetches.Records(), nil
}

// Whether it was committed. The session rewinds after an abort by itself.
func transact(session *kgo.GroupTransactSession, records []*kgo.Record, target string, how kgo.TransactionEndTry) (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*longest)
	defer cancel()
	if err := session.Begin(); err != nil {
		return false, err
	}
	for _, record := range records {
		made := &kgo.Record{Topic: target, Partition: record.Partition, Value: record.Value}
		session.Produce(ctx, made, func(_ *kgo.Record, err error) {
			if err != nil {
				fmt.Fprintln(os.Stderr, "not sent:", err)
				how = kgo.TryAbort
			}
		})
	}
	if err := session.Client().Flush(ctx); err != nil { // an abort should have something to abort
		return false, err
	}
	return session.End(ctx, how)
}
