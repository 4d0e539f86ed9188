// Transactions of two partitions and a group's offsets, one after the other, with Kafka's own client.
// Arguments: ADDRESS TOPIC COUNT. Prints how many microseconds each of them took, one a line.

import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Transactions {
    public static void main(String[] args) {
        String topic = args[1];
        int count = Integer.parseInt(args[2]);
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", args[0],
            "transactional.id", "bench-java",
            "linger.ms", 0,
            "key.serializer", ByteArraySerializer.class,
            "value.serializer", ByteArraySerializer.class);
        byte[] value = new byte[100];
        ConsumerGroupMetadata group = new ConsumerGroupMetadata("bench-group");
        StringBuilder taken = new StringBuilder();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings)) {
            producer.initTransactions();
            for (int number = 0; number < count; number++) {
                long started = System.nanoTime();
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, 0, null, value));
                producer.send(new ProducerRecord<>(topic, 1, null, value));
                producer.sendOffsetsToTransaction(
                    Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(number)), group);
                producer.commitTransaction();
                taken.append((System.nanoTime() - started) / 1000).append('\n');
            }
        }
        System.out.print(taken);
    }
}
