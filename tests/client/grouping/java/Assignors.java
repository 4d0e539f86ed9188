import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/** Java's assignors: a case a line, an answer a line. See test_assignors_java.py. */
public final class Assignors {
    private static final Node NODE = new Node(1, "a", 1);

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", -1);
            System.out.println(words[0].equals("assign") ? assign(words) : subscription(words));
            System.out.flush();
        }
    }

    private static ConsumerPartitionAssignor named(String name) {
        return switch (name) {
            case "range" -> new RangeAssignor();
            case "roundrobin" -> new RoundRobinAssignor();
            case "sticky" -> new StickyAssignor();
            default -> new CooperativeStickyAssignor();
        };
    }

    /** assign NAME TOPIC=COUNT,... and, for each member, ID/INSTANCE/TOPIC,.../GENERATION/TOPIC:NUMBER,... */
    private static String assign(String[] words) {
        List<PartitionInfo> partitions = new ArrayList<>();
        for (String topic : words[2].split(",")) {
            String[] parts = topic.split("=");
            for (int number = 0; number < Integer.parseInt(parts[1]); number++) {
                partitions.add(new PartitionInfo(parts[0], number, NODE, new Node[] {NODE}, new Node[] {NODE}));
            }
        }
        Map<String, Subscription> members = new HashMap<>();
        for (String member : Arrays.asList(words).subList(3, words.length)) {
            String[] parts = member.split("/", -1);
            int generation = Integer.parseInt(parts[3]);
            List<TopicPartition> owned = places(parts[4]);
            ByteBuffer data = null;
            if (words[1].equals("sticky") && generation >= 0) {
                data = userData(named("sticky"), owned, generation, Set.of());
            }
            Subscription subscription = new Subscription(
                Arrays.asList(parts[2].split(",")), data, owned, generation, Optional.empty());
            if (!parts[1].isEmpty()) {
                subscription.setGroupInstanceId(Optional.of(parts[1]));
            }
            members.put(parts[0], subscription);
        }
        Cluster cluster = new Cluster("c", List.of(NODE), partitions, Set.of(), Set.of());
        Map<String, Assignment> found =
            named(words[1]).assign(cluster, new GroupSubscription(members)).groupAssignment();
        List<String> answer = new ArrayList<>();
        new TreeMap<>(found).forEach((member, given) -> {
            List<String> names = new ArrayList<>();
            given.partitions().forEach(place -> names.add(place.topic() + ":" + place.partition()));
            answer.add(member + "=" + String.join(",", names));
        });
        return String.join(" ", answer);
    }

    /** subscription NAME TOPIC,... GENERATION TOPIC:NUMBER,... */
    private static String subscription(String[] words) {
        List<TopicPartition> owned = places(words[4]);
        List<String> topics = Arrays.asList(words[2].split(","));
        int generation = Integer.parseInt(words[3]);
        ByteBuffer data = userData(named(words[1]), owned, generation, new HashSet<>(topics));
        ByteBuffer bytes = ConsumerProtocol.serializeSubscription(
            new Subscription(topics, data, owned, generation, Optional.empty()));
        byte[] plain = new byte[bytes.remaining()];
        bytes.get(plain);
        return HexFormat.of().formatHex(plain);
    }

    private static ByteBuffer userData(
            ConsumerPartitionAssignor assignor, List<TopicPartition> owned, int generation, Set<String> topics) {
        if (generation >= 0) {
            assignor.onAssignment(
                new Assignment(owned), new ConsumerGroupMetadata("g", generation, "m", Optional.empty()));
        }
        return assignor.subscriptionUserData(topics);
    }

    private static List<TopicPartition> places(String words) {
        List<TopicPartition> found = new ArrayList<>();
        for (String place : words.split(",")) {
            if (!place.isEmpty()) {
                String[] parts = place.split(":");
                found.add(new TopicPartition(parts[0], Integer.parseInt(parts[1])));
            }
        }
        return found;
    }
}
