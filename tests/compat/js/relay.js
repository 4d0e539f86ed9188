// KafkaJS: consume, transform, produce in transactions, as a member of a group.
//
// Arguments: BOOTSTRAP TRANSACTIONAL_ID GROUP SOURCE TARGET COUNT. Each batch is one transaction; every third is aborted
// and done again. Ends when COUNT records are in the target, and prints how many transactions were committed and aborted.

const { Kafka, logLevel } = require('kafkajs');

const [bootstrap, transactionalId, groupId, source, target, count] = process.argv.slice(2);
const kafka = new Kafka({
  brokers: [bootstrap],
  clientId: 'kafkajs',
  logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 100, retries: 100 },
});

async function main() {
  const producer = kafka.producer({ transactionalId, idempotent: true, maxInFlightRequests: 1 });
  const consumer = kafka.consumer({ groupId, sessionTimeout: 6000, heartbeatInterval: 300, maxWaitTimeInMs: 50 });
  await producer.connect();
  await consumer.connect();
  await consumer.subscribe({ topics: [source], fromBeginning: true });
  let [number, done, committed, aborted] = [0, 0, 0, 0];
  let finish;
  const finished = new Promise((resolve) => { finish = resolve; });

  async function transact(partition, messages, commits) {
    const transaction = await producer.transaction();
    await transaction.send({
      topic: target,
      messages: messages.map(({ key, value }) => ({ key, value, partition })),
    });
    const offset = (BigInt(messages[messages.length - 1].offset) + 1n).toString();
    await transaction.sendOffsets({
      consumerGroupId: groupId,
      topics: [{ topic: source, partitions: [{ partition, offset }] }],
    });
    await (commits ? transaction.commit() : transaction.abort());
  }

  await consumer.run({
    autoCommit: false,
    eachBatchAutoResolve: false,
    eachBatch: async ({ batch, resolveOffset, heartbeat }) => {
      for (let first = 0; first < batch.messages.length; first += 5) {
        const messages = batch.messages.slice(first, first + 5);
        number += 1;
        if (number % 3 === 0) {
          await transact(batch.partition, messages, false);
          aborted += 1;
        }
        await transact(batch.partition, messages, true);
        committed += 1;
        done += messages.length;
        resolveOffset(messages[messages.length - 1].offset);
        await heartbeat();
        console.log(`progress ${committed}`);
      }
      if (done >= Number(count)) finish();
    },
  });
  await finished;
  await consumer.disconnect();
  await producer.disconnect();
  console.log(`ok ${committed} ${aborted}`);
}

main().catch((error) => {
  console.log(`error ${error.name} ${error.message}`);
  process.exit(1);
});
