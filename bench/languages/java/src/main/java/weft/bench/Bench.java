package weft.bench;

import com.google.gson.Gson;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.protobuf.ByteString;
import com.sun.management.OperatingSystemMXBean;
import io.grpc.ManagedChannel;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import weft.v1.AckRequest;
import weft.v1.CreateQueueRequest;
import weft.v1.DeleteQueueRequest;
import weft.v1.DescribeQueueRequest;
import weft.v1.OutMessage;
import weft.v1.PopRequest;
import weft.v1.PopResponse;
import weft.v1.PushRequest;
import weft.v1.QueueDescription;
import weft.v1.QueueGrpc;
import weft.v1.QueueGrpc.QueueBlockingStub;

/**
 * The Java side of `python -m bench.languages`: Bench TASK, where TASK is JSON. Each of `in_flight`
 * callers pushes one message, pops one and acks it, for the given time.
 */
public final class Bench {
  private static final long CALL_S = 60;
  private static final double WARM_UP_S = 1.0; // the virtual machine compiles meanwhile
  private static final Gson GSON = new Gson();

  private final String queue;
  private final int inFlight;
  private final ByteString body;
  private final QueueBlockingStub client;
  private final long producer = new Random().nextLong() & ((1L << 56) - 1);
  private final AtomicLong batch = new AtomicLong();

  private Bench(JsonObject task, ManagedChannel channel) {
    queue = task.get("queue").getAsString();
    inFlight = task.get("in_flight").getAsInt();
    byte[] bytes = new byte[task.get("size").getAsInt()];
    new Random().nextBytes(bytes);
    body = ByteString.copyFrom(bytes);
    client = QueueGrpc.newBlockingStub(channel);
  }

  private QueueBlockingStub limited() {
    return client.withDeadlineAfter(CALL_S, TimeUnit.SECONDS);
  }

  /** One caller until the given time; returns the nanoseconds of its pushes. */
  private List<Long> caller(long until) {
    List<Long> samples = new ArrayList<>();
    while (System.nanoTime() < until) {
      long began = System.nanoTime();
      limited()
          .push(
              PushRequest.newBuilder()
                  .setQueue(queue)
                  .addMessages(OutMessage.newBuilder().setBody(body))
                  .setProducer(producer)
                  .setBatch(batch.incrementAndGet())
                  .build());
      samples.add(System.nanoTime() - began);
      PopResponse popped =
          limited()
              .pop(PopRequest.newBuilder().setQueue(queue).setLimit(1).setWaitMs(10_000).build());
      if (popped.getMessagesCount() != 1) {
        throw new IllegalStateException("no message came, though one was pushed");
      }
      AckRequest ack =
          AckRequest.newBuilder()
              .setQueue(queue)
              .addReceipts(popped.getMessages(0).getReceipt())
              .build();
      if (limited().ack(ack).getDone() != 1) {
        throw new IllegalStateException("a receipt was lost");
      }
    }
    return samples;
  }

  private List<Long> run(double seconds) throws Exception {
    long until = System.nanoTime() + (long) (seconds * 1e9);
    ExecutorService callers = Executors.newFixedThreadPool(inFlight);
    List<Long> samples = new ArrayList<>();
    try {
      List<Future<List<Long>>> running = new ArrayList<>();
      for (int number = 0; number < inFlight; number++) {
        running.add(callers.submit(() -> caller(until)));
      }
      for (Future<List<Long>> one : running) {
        samples.addAll(one.get());
      }
    } finally {
      callers.shutdown();
    }
    Collections.sort(samples);
    return samples;
  }

  private Map<String, Object> measure(double seconds) throws Exception {
    limited().createQueue(CreateQueueRequest.newBuilder().setQueue(queue).build());
    run(WARM_UP_S);
    System.out.println("{\"ready\":true}");
    new BufferedReader(new InputStreamReader(System.in)).readLine();
    OperatingSystemMXBean machine =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    long cpu = machine.getProcessCpuTime();
    long began = System.nanoTime();
    List<Long> samples = run(seconds);
    double took = (System.nanoTime() - began) / 1e9;
    double used = (machine.getProcessCpuTime() - cpu) / 1e9;
    QueueDescription found =
        limited().describeQueue(DescribeQueueRequest.newBuilder().setQueue(queue).build());
    if (found.getReady() + found.getLeased() != 0) {
      throw new IllegalStateException("messages are left, though all were acked");
    }
    limited().deleteQueue(DeleteQueueRequest.newBuilder().setQueue(queue).build());
    return Map.of(
        "messages", samples.size(),
        "calls", 3 * samples.size(),
        "seconds", took,
        "p50_us", samples.get((samples.size() - 1) / 2) / 1e3,
        "p99_us", samples.get((int) (0.99 * (samples.size() - 1))) / 1e3,
        "client_cpu_s", used);
  }

  public static void main(String[] arguments) {
    JsonObject task = JsonParser.parseString(arguments[0]).getAsJsonObject();
    ManagedChannel channel =
        NettyChannelBuilder.forTarget(task.get("address").getAsString()).usePlaintext().build();
    int code = 0;
    try {
      double seconds = task.get("seconds").getAsDouble();
      System.out.println(GSON.toJson(new Bench(task, channel).measure(seconds)));
    } catch (Exception error) {
      Map<String, String> why = Map.of("message", String.valueOf(error.getMessage()));
      System.out.println(GSON.toJson(Map.of("error", why)));
      code = 1;
    }
    channel.shutdownNow();
    System.exit(code);
  }
}
