import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.security.JaasContext;

/**
 * Reads lines of JAAS as Kafka's clients do. See test_jaas_of_kafka.py.
 *
 * A line of the input is the line of JAAS in base64. The answer has an option in each word, NAME=VALUE in base64, in the
 * order of the names, behind the word `options`, or is the word `refused`. Kafka takes options whose name is null, which no
 * setting asks for: the word `nameless`.
 */
public final class JaasAgent {
    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String text = new String(Base64.getDecoder().decode(line), StandardCharsets.UTF_8);
            answers.println(read(text));
        }
    }

    private static String read(String text) {
        StringBuilder found = new StringBuilder("options");
        try {
            JaasContext context = JaasContext.loadClientContext(Map.of("sasl.jaas.config", new Password(text)));
            Map<String, ?> given = context.configurationEntries().get(0).getOptions();
            if (given.containsKey(null)) {
                return "nameless";
            }
            Map<String, Object> options = new TreeMap<>(given);
            options.forEach((name, value) -> found.append(' ').append(encoded(name)).append('=').append(encoded(value)));
        } catch (IllegalArgumentException | NullPointerException refused) {
            return "refused";
        }
        return found.toString();
    }

    private static String encoded(Object text) {
        return Base64.getUrlEncoder().withoutPadding().encodeToString(text.toString().getBytes(StandardCharsets.UTF_8));
    }
}
