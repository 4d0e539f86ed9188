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
    /** The status with which the tool has ended first: some catch what ends them, and end once more. */
    private static Integer status;

    private static final class Exited extends RuntimeException {}

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        Exit.setExitProcedure((given, message) -> {
            if (status == null) {
                status = given;
            }
            throw new Exited();
        });
        InputStreamReader bytes = new InputStreamReader(System.in, StandardCharsets.UTF_8);
        BufferedReader lines = new BufferedReader(bytes);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream out = new PrintStream(printed, true, StandardCharsets.UTF_8);
            System.setOut(out);
            System.setErr(out);
            List<String> words = Arrays.asList(line.split("\t", -1));
            status = null;
            run(words.get(0), words.subList(1, words.size()));
            out.flush();
            answers.println(status + " " + printed.size());
            printed.writeTo(answers);
            answers.flush();
        }
    }

    private static void run(String tool, List<String> arguments) throws Exception {
        int otherwise = 0;
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments.toArray(new String[0]));
        } catch (InvocationTargetException error) {
            if (status == null) {
                error.getCause().printStackTrace();
                otherwise = 1;
            }
        }
        if (status == null) {
            status = otherwise;
        }
    }
}
