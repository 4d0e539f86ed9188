// The agent over KafkaJS (first generation of the transaction protocol). See agents.py.
//
// A relay is a member without an instance: KafkaJS has no static membership. KafkaJS initialises a
// producer's transactions when the first one begins, so `open` only connects.

const fs = require('fs');
const readline = require('readline');
const { Kafka, logLevel } = require('kafkajs');

const EVERY_THIRD = 3;
const producers = {};
const transactions = {};

function client(bootstrap) {
  return new Kafka({
    brokers: bootstrap.split(','),
    clientId: 'kafkajs',
    logLevel: logLevel.NOTHING,
    retry: { initialRetryTime: 100, retries: 100 },
    ...secured(),
  });
}

// What AGENT_SETTINGS asks for, by librdkafka's names and `sasl.oauthbearer.token`: TLS and SASL, one of them, or nothing.
function secured() {
  const lines = (process.env.AGENT_SETTINGS || '').split('\n').filter((line) => line);
  const given = Object.fromEntries(lines.map((line) => [
    line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1),
  ]));
  const protocol = given['security.protocol'] || '';
  return {
    reauthenticationThreshold: 1000, // with its default of 10 s it renews a shorter session at each request
    ...(protocol.endsWith('SSL') && { ssl: encryption(given) }),
    ...(protocol.startsWith('SASL') && { sasl: login(given) }),
  };
}

function encryption(given) {
  const content = (name) => given[name] && fs.readFileSync(given[name], 'utf-8');
  return {
    ca: [content('ssl.ca.location')],
    cert: content('ssl.certificate.location'),
    key: content('ssl.key.location'),
  };
}

function login(given) {
  const mechanism = given['sasl.mechanism'].toLowerCase();
  if (mechanism === 'oauthbearer') {
    return { mechanism, oauthBearerProvider: async () => ({ value: given['sasl.oauthbearer.token'] }) };
  }
  return { mechanism, username: given['sasl.username'], password: given['sasl.password'] };
}

async function opened(bootstrap, transactionalId, timeoutMs) {
  const producer = client(bootstrap).producer({
    transactionalId,
    transactionTimeout: timeoutMs,
    idempotent: true,
    maxInFlightRequests: 1,
  });
  await producer.connect();
  return producer;
}

const commands = {
  async open(name, bootstrap, transactionalId, timeoutMs) {
    producers[name] = await opened(bootstrap, transactionalId, Number(timeoutMs));
  },
  async begin(name) {
    transactions[name] = await producers[name].transaction();
  },
  async commit(name) {
    await transactions[name].commit();
  },
  async abort(name) {
    await transactions[name].abort();
  },
  async send(name, topic, partition, value) {
    const messages = [{ value, partition: Number(partition) }];
    const [stored] = await transactions[name].send({ topic, messages });
    return stored.baseOffset;
  },
  async offsets(name, groupId, topic, partition, offset) {
    await sendOffset(transactions[name], groupId, topic, Number(partition), offset);
  },
  relay,
};

function sendOffset(transaction, consumerGroupId, topic, partition, offset) {
  return transaction.sendOffsets({
    consumerGroupId,
    topics: [{ topic, partitions: [{ partition, offset }] }],
  });
}

// Consume, transform, produce: each part of a batch is one transaction, every third is aborted and done again.
async function relay(bootstrap, transactionalId, groupId, instance, source, target, count, size) {
  const producer = await opened(bootstrap, transactionalId, 60_000);
  const consumer = client(bootstrap).consumer({
    groupId, sessionTimeout: 6000, heartbeatInterval: 300, maxWaitTimeInMs: 50,
  });
  let [number, done, committed, aborted] = [0, 0, 0, 0];

  async function transact(partition, messages, commits) {
    const transaction = await producer.transaction();
    await transaction.send({
      topic: target,
      messages: messages.map(({ key, value }) => ({ key, value, partition })),
    });
    const offset = (BigInt(messages[messages.length - 1].offset) + 1n).toString();
    await sendOffset(transaction, groupId, source, partition, offset);
    await (commits ? transaction.commit() : transaction.abort());
  }

  async function copy({ batch, resolveOffset, heartbeat }) {
    for (let first = 0; first < batch.messages.length; first += Number(size)) {
      const messages = batch.messages.slice(first, first + Number(size));
      number += 1;
      if (number % EVERY_THIRD === 0) {
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
  }

  try {
    await consumer.connect();
    await consumer.subscribe({ topics: [source], fromBeginning: true });
    await new Promise((finish, refuse) => {
      consumer.on(consumer.events.CRASH, ({ payload }) => {
        if (!payload.restart) refuse(payload.error);
      });
      consumer.run({
        autoCommit: false,
        eachBatchAutoResolve: false,
        eachBatch: async (given) => {
          await copy(given);
          if (done >= Number(count)) finish();
        },
      }).catch(refuse);
    });
  } finally {
    await consumer.disconnect();
    await producer.disconnect();
  }
  return `${committed} ${aborted}`;
}

// KafkaJS wraps an error in others, of which only the innermost knows the protocol's name.
function kindOf(error) {
  return error.type || (error.cause ? kindOf(error.cause) : error.name);
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [command, ...words] = line.split(' ');
    try {
      console.log(`ok ${await commands[command](...words) ?? ''}`.trim());
    } catch (error) {
      console.log(`error ${kindOf(error)} ${error.message.replaceAll('\n', ' ')}`);
    }
  }
}

main();
