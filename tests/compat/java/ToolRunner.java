import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command line tools, each through its own main, one after the other in one JVM. See kafka_tool.py.
 *
 * A line is a class and its arguments, separated by tabs; the answer is a line with the exit status and the number of
 * bytes that follow: what the tool printed.
 */
public final class ToolRunner {
    private static final class Exited extends RuntimeException {
        private final int status;

        private Exited(int status) {
            this.status = status;
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        Exit.setExitProcedure((status, message) -> {
            throw new Exited(status);
        });
        InputStreamReader bytes = new InputStreamReader(System.in, StandardCharsets.UTF_8);
        BufferedReader lines = new BufferedReader(bytes);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream out = new PrintStream(printed, true, StandardCharsets.UTF_8);
            System.setOut(out);
            System.setErr(out);
            List<String> words = Arrays.asList(line.split("\t", -1));
            int status = run(words.get(0), words.subList(1, words.size()));
            out.flush();
            answers.println(status + " " + printed.size());
            printed.writeTo(answers);
            answers.flush();
        }
    }

    private static int run(String tool, List<String> arguments) throws Exception {
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments.toArray(new String[0]));
            return 0;
        } catch (InvocationTargetException error) {
            for (Throwable cause = error.getCause(); cause != null; cause = cause.getCause()) {
                if (cause instanceof Exited exited) {
                    return exited.status;
                }
            }
            error.getCause().printStackTrace();
            return 1;
        }
    }
}
