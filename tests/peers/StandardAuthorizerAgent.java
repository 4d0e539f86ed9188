import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Proxy;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.PluginMetrics;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;

/**
 * Asks Kafka's own authorizer, without a broker. See standard_authorizer.py.
 *
 * A line is a command and its arguments, separated by tabs. `begin` makes a new authorizer, `add` and `remove` change
 * its entries; `may` and `may_some` are questions, each answered by a line.
 */
public final class StandardAuthorizerAgent {
    private static StandardAuthorizer authorizer;
    private static final Map<String, Uuid> IDS = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        InputStreamReader bytes = new InputStreamReader(System.in, StandardCharsets.UTF_8);
        BufferedReader lines = new BufferedReader(bytes);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t", -1);
            switch (words[0]) {
                case "begin" -> begin(words[1], words[2]);
                case "add" -> authorizer.addAcl(IDS.computeIfAbsent(line.substring(4), key -> Uuid.randomUuid()), acl(words));
                case "remove" -> authorizer.removeAcl(IDS.remove(line.substring(7)));
                case "may" -> answers.println(may(words));
                case "may_some" -> answers.println(maySome(words));
                case "flush" -> answers.flush();
                default -> throw new IllegalArgumentException(line);
            }
        }
        answers.flush();
    }

    private static void begin(String superUsers, String allowsUnknown) throws Exception {
        IDS.clear();
        authorizer = new StandardAuthorizer();
        authorizer.configure(Map.of(
            StandardAuthorizer.SUPER_USERS_CONFIG, superUsers,
            StandardAuthorizer.ALLOW_EVERYONE_IF_NO_ACL_IS_FOUND_CONFIG, allowsUnknown,
            "node.id", "1"));
        authorizer.withPluginMetrics(metrics());
        authorizer.completeInitialLoad();
    }

    /** Metrics that nobody reads. */
    private static PluginMetrics metrics() {
        Metrics all = new Metrics();
        return (PluginMetrics) Proxy.newProxyInstance(
            PluginMetrics.class.getClassLoader(), new Class<?>[] {PluginMetrics.class}, (proxy, method, given) ->
                switch (method.getName()) {
                    case "metricName" -> new MetricName((String) given[0], "agent", (String) given[1], Map.of());
                    case "addSensor" -> all.sensor((String) given[0]);
                    default -> null;
                });
    }

    private static StandardAcl acl(String[] words) {
        return new StandardAcl(
            ResourceType.valueOf(words[1]), words[3], PatternType.valueOf(words[2]), words[4], words[5],
            AclOperation.valueOf(words[6]), AclPermissionType.valueOf(words[7]));
    }

    private static Object may(String[] words) throws Exception {
        ResourcePattern resource = new ResourcePattern(ResourceType.valueOf(words[4]), words[5], PatternType.LITERAL);
        Action action = new Action(AclOperation.valueOf(words[3]), resource, 1, false, false);
        return authorizer.authorize(client(words[1], words[2]), List.of(action)).get(0);
    }

    private static Object maySome(String[] words) throws Exception {
        return authorizer.authorizeByResourceType(
            client(words[1], words[2]), AclOperation.valueOf(words[3]), ResourceType.valueOf(words[4]));
    }

    private static AuthorizableRequestContext client(String principal, String host) throws Exception {
        KafkaPrincipal parsed = SecurityUtils.parseKafkaPrincipal(principal);
        InetAddress address = InetAddress.getByName(host);
        return new AuthorizableRequestContext() {
            @Override public String listenerName() {
                return "CLIENTS";
            }
            @Override public SecurityProtocol securityProtocol() {
                return SecurityProtocol.SASL_SSL;
            }
            @Override public KafkaPrincipal principal() {
                return parsed;
            }
            @Override public InetAddress clientAddress() {
                return address;
            }
            @Override public int requestType() {
                return 0;
            }
            @Override public int requestVersion() {
                return 0;
            }
            @Override public String clientId() {
                return "agent";
            }
            @Override public int correlationId() {
                return 0;
            }
        };
    }
}
