import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Sends records one after the other with acks=all: Produce BOOTSTRAP TOPIC.
 *
 * It prints for each the time of its answer, in seconds of the monotonic clock, and its offset. An error ends it.
 */
public class Produce {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("acks", "all");
        settings.put("linger.ms", "0");
        byte[] value = "value".getBytes();
        ByteArraySerializer serializer = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, serializer, serializer)) {
            while (true) {
                long offset = producer.send(new ProducerRecord<>(arguments[1], value)).get().offset();
                System.out.println(System.nanoTime() / 1e9 + " " + offset);
                System.out.flush();
                Thread.sleep(10);
            }
        }
    }
}
