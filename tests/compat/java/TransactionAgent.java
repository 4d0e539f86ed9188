import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.FencedInstanceIdException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** The agent over Apache Kafka's own client (second generation of the transaction protocol). See agents.py. */
public final class TransactionAgent {
    private static final int EVERY_THIRD = 3;
    private static final Duration POLL = Duration.ofMillis(100);

    private final Map<String, KafkaProducer<String, String>> producers = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        TransactionAgent agent = new TransactionAgent();
        InputStreamReader bytes = new InputStreamReader(System.in, StandardCharsets.UTF_8);
        BufferedReader lines = new BufferedReader(bytes);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            try {
                say(("ok " + agent.perform(line.split(" "))).strip());
            } catch (ExecutionException error) { // of a record that was sent
                refuse(error.getCause());
            } catch (KafkaException | IllegalStateException error) {
                refuse(error);
            }
        }
    }

    private String perform(String[] words) throws Exception {
        KafkaProducer<String, String> producer = producers.get(words[1]);
        switch (words[0]) {
            case "open" -> producers.put(words[1], open(words[2], words[3], Integer.parseInt(words[4])));
            case "begin" -> producer.beginTransaction();
            case "commit" -> end(producer, true);
            case "abort" -> end(producer, false);
            case "send" -> {
                int partition = Integer.parseInt(words[3]);
                return "" + producer.send(new ProducerRecord<>(words[2], partition, null, words[4])).get().offset();
            }
            case "offsets" -> {
                TopicPartition place = new TopicPartition(words[3], Integer.parseInt(words[4]));
                OffsetAndMetadata offset = new OffsetAndMetadata(Long.parseLong(words[5]));
                producer.sendOffsetsToTransaction(Map.of(place, offset), new ConsumerGroupMetadata(words[2]));
            }
            case "relay" -> {
                return new Relay(words).run();
            }
            default -> throw new IllegalArgumentException(words[0]);
        }
        return "";
    }

    private static KafkaProducer<String, String> open(String bootstrap, String transactionalId, int timeoutMs) {
        Map<String, Object> settings = quick(bootstrap);
        settings.put("transactional.id", transactionalId);
        settings.put("transaction.timeout.ms", timeoutMs);
        KafkaProducer<String, String> producer =
            new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        return producer;
    }

    /** How soon a broker that died is looked for again, and what the test gives to every client. */
    private static Map<String, Object> quick(String bootstrap) {
        Map<String, Object> settings = new HashMap<>(Map.of(
            "bootstrap.servers", bootstrap,
            "retry.backoff.ms", 20,
            "reconnect.backoff.ms", 20,
            "reconnect.backoff.max.ms", 200));
        for (String line : System.getenv().getOrDefault("AGENT_SETTINGS", "").split("\n")) {
            if (!line.isEmpty()) {
                int end = line.indexOf('=');
                settings.put(line.substring(0, end), line.substring(end + 1));
            }
        }
        return settings;
    }

    /** A time-out means that the very same call may be made again. */
    private static void end(KafkaProducer<String, String> producer, boolean commits) {
        while (true) {
            try {
                if (commits) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
                return;
            } catch (TimeoutException error) {
                System.err.println("once more: " + error);
            }
        }
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private static void refuse(Throwable error) {
        say("error " + error.getClass().getSimpleName() + " " + String.valueOf(error.getMessage()).replace('\n', ' '));
    }

    /** Consume, transform, produce: each poll is one transaction, every third is aborted and done again. */
    private static final class Relay {
        private final KafkaProducer<String, String> producer;
        private final KafkaConsumer<String, String> consumer;
        private final String target;
        private final long count;
        private int number = 0;
        private int committed = 0;
        private int aborted = 0;

        Relay(String[] words) {
            target = words[6];
            count = Long.parseLong(words[7]);
            producer = open(words[1], words[2], 60_000);
            Map<String, Object> settings = quick(words[1]);
            settings.put("group.id", words[3]);
            settings.put("group.instance.id", words[4]);
            settings.put("isolation.level", "read_committed");
            settings.put("auto.offset.reset", "earliest");
            settings.put("enable.auto.commit", false);
            settings.put("session.timeout.ms", 45_000);
            settings.put("heartbeat.interval.ms", 300);
            settings.put("fetch.max.wait.ms", 50);
            settings.put("max.poll.records", Integer.parseInt(words[8]));
            consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
            consumer.subscribe(Set.of(words[5]));
        }

        String run() {
            try (producer; consumer) {
                while (!isDone()) {
                    ConsumerRecords<String, String> records = consumer.poll(POLL);
                    if (records.isEmpty()) {
                        continue;
                    }
                    number++;
                    if (transact(records, number % EVERY_THIRD != 0)) {
                        committed++;
                        say("progress " + committed);
                    } else {
                        aborted++;
                        rewind();
                    }
                }
            }
            return committed + " " + aborted;
        }

        /** Whether all has been consumed: the source holds plain records only, from offset 0 on. */
        private boolean isDone() {
            return consumer.assignment().stream().mapToLong(consumer::position).sum() == count;
        }

        private boolean transact(ConsumerRecords<String, String> records, boolean commits) {
            try {
                producer.beginTransaction();
                for (ConsumerRecord<String, String> record : records) {
                    producer.send(new ProducerRecord<>(target, record.partition(), null, record.value()));
                }
                producer.sendOffsetsToTransaction(records.nextOffsets(), consumer.groupMetadata());
                if (commits) {
                    end(producer, true);
                    return true;
                }
            } catch (ProducerFencedException | OutOfOrderSequenceException | AuthorizationException
                    | FencedInstanceIdException error) {
                throw error; // nothing more can be done
            } catch (KafkaException error) {
                System.err.println("to be aborted: " + error);
            }
            end(producer, false);
            return false;
        }

        /** Consume again what an aborted transaction had consumed (KAFKA-17582). */
        private void rewind() {
            Map<TopicPartition, OffsetAndMetadata> stored = consumer.committed(consumer.assignment());
            for (TopicPartition place : consumer.assignment()) {
                OffsetAndMetadata offset = stored.get(place);
                consumer.seek(place, offset == null ? 0 : offset.offset());
            }
        }
    }
}
