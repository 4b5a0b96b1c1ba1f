import java.io.ByteArrayInputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublisher;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.util.regex.Pattern;

/** The walk with Java's HttpClient. STREAM=1 sends bodies without a length. */
public class Walk {
    static final String API = System.getenv("BASE_URL") + "/api/vendor/v1";
    static final HttpClient CLIENT = HttpClient.newHttpClient();
    static String token;
    static HttpClient.Version version;

    static BodyPublisher publisher(String body) {
        if (body == null) {
            return BodyPublishers.noBody();
        }
        if (System.getenv("STREAM") == null) {
            return BodyPublishers.ofString(body);
        }
        byte[] bytes = body.getBytes(StandardCharsets.UTF_8);
        return BodyPublishers.ofInputStream(() -> new ByteArrayInputStream(bytes));
    }

    static String call(int want, String method, String path, String body, String... headers) throws Exception {
        var request = HttpRequest.newBuilder(URI.create(API + path)).method(method, publisher(body));
        if (headers.length > 0) {
            request.headers(headers);
        }
        if (body != null) {
            request.header("Content-Type", "application/json");
        }
        if (token != null) {
            request.header("Authorization", "Bearer " + token);
        }
        var answer = CLIENT.send(request.build(), HttpResponse.BodyHandlers.ofString());
        version = answer.version();
        if (answer.statusCode() != want) {
            throw new IllegalStateException(method + " " + path + " answered " + answer.statusCode() + ": " + answer.body());
        }
        return answer.body();
    }

    /** The first text of that name. */
    static String field(String json, String name) {
        var found = Pattern.compile("\"" + name + "\":\"([^\"]*)\"").matcher(json);
        return found.find() ? found.group(1) : "";
    }

    static String order(String id, String note) {
        return "{\"externalStoreId\":\"moda\",\"externalOrderId\":\"" + id + "\",\"recipient\":{\"name\":\"Ayşe Kaya\",\"phone\":\"05321234567\"},"
            + "\"dropoff\":{\"text\":\"Bahariye Caddesi No: 2, Kadıköy\",\"latitude\":40.988,\"longitude\":29.03},\"packageNote\":\"" + note + "\"}";
    }

    public static void main(String[] args) throws Exception {
        token = field(call(200, "POST", "/token",
            "{\"clientId\":\"" + System.getenv("CLIENT_ID") + "\",\"clientSecret\":\"" + System.getenv("CLIENT_SECRET") + "\"}"), "accessToken");

        var store = "\"taxNumber\":\"1234567890\",\"name\":\"Moda Şubesi\",\"phone\":\"02165550011\","
            + "\"address\":{\"text\":\"Moda Caddesi No: 1, Kadıköy\",\"latitude\":40.9816,\"longitude\":29.0258}";
        var fleet = field(call(200, "PUT", "/stores/moda", "{" + store + "}"), "fleetId");
        var state = call(200, "PUT", "/stores/moda", "{" + store + ",\"fleetId\":\"" + fleet + "\"}");
        while (!field(state, "status").equals("Active")) {
            Thread.sleep(300);
            state = call(200, "PUT", "/stores/moda", "{" + store + "}");
        }

        var delivered = field(call(201, "POST", "/orders", order("A-1", ""), "Idempotency-Key", "A-1"), "orderId");
        var again = field(call(201, "POST", "/orders", order("A-1", ""), "X-Idempotency-Key", "A-1"), "orderId");
        if (!again.equals(delivered)) {
            throw new IllegalStateException("the order again is " + again + ", not " + delivered);
        }
        var cancelled = field(call(201, "POST", "/orders", order("A-2", "SIM:HOLD=Assigned"), "Idempotency-Key", "A-2"), "orderId");
        call(200, "POST", "/orders/" + cancelled + "/cancel", null);

        Thread.sleep(4000);
        while (!field(call(200, "GET", "/orders/" + delivered, null), "status").equals("Delivered")) {
            Thread.sleep(10_000);
        }
        System.out.println(delivered + " " + cancelled + " " + (version == HttpClient.Version.HTTP_2 ? "HTTP/2" : "HTTP/1.1"));
    }
}
