import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A member of a group, until its input ends: BOOTSTRAP TOPIC and consumer settings KEY=VALUE. It
 * prints "value V" for each record, and "owned 0,1" when its partitions have changed.
 */
public final class GroupMember {
    private GroupMember() {}

    public static void main(String[] arguments) throws IOException {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        for (int i = 2; i < arguments.length; i++) {
            String[] setting = arguments[i].split("=", 2);
            settings.put(setting[0], setting[1]);
        }
        String before = "";
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(List.of(arguments[1]));
            while (System.in.available() == 0) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(50))) {
                    System.out.println("value " + new String(record.value(), StandardCharsets.UTF_8));
                }
                String owned = consumer.assignment().stream()
                        .map(partition -> String.valueOf(partition.partition()))
                        .sorted()
                        .collect(Collectors.joining(","));
                if (!owned.equals(before)) {
                    System.out.println("owned " + owned);
                    before = owned;
                }
            }
        }
    }
}
