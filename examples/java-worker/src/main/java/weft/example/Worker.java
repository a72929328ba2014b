package weft.example;

import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.BooleanSupplier;
import java.util.function.Function;
import weft.v1.AckRequest;
import weft.v1.ExtendRequest;
import weft.v1.Message;
import weft.v1.NackRequest;
import weft.v1.PopRequest;
import weft.v1.QueueGrpc;
import weft.v1.QueueGrpc.QueueBlockingStub;

/** Takes messages from a queue until SIGTERM: Worker ADDRESS QUEUE [CONCURRENCY]. */
public final class Worker {
  private static final long CALL_MS = 10_000;
  /** A pop waits this long for a message; after SIGTERM the worker waits for its last pop. */
  private static final long POP_WAIT_MS = 1_000;
  private static final long PAUSE_MS_MIN = 100;
  private static final long PAUSE_MS_MAX = 5_000;
  private static final Metadata.Key<String> RETRIABLE =
      Metadata.Key.of("weft-retriable", Metadata.ASCII_STRING_MARSHALLER);

  private final ManagedChannel channel;
  private final QueueBlockingStub client;
  private final String queue;
  private final int concurrency;
  private final ExecutorService workers;
  private final ScheduledExecutorService timers = Executors.newScheduledThreadPool(2);
  private final Semaphore free;
  private final AtomicLong handled = new AtomicLong();
  private volatile boolean stopping;

  Worker(String address, String queue, int concurrency) {
    this.channel = NettyChannelBuilder.forTarget(address).usePlaintext().build();
    this.client = QueueGrpc.newBlockingStub(channel);
    this.queue = queue;
    this.concurrency = concurrency;
    this.workers = Executors.newFixedThreadPool(concurrency);
    this.free = new Semaphore(concurrency);
  }

  /** The work of one message: here the body says how many milliseconds it takes. */
  private static void handle(Message message) throws Exception {
    String[] fields = message.getBody().toStringUtf8().split(" ");
    if (fields.length != 2) {
      throw new IllegalArgumentException("the body is not NAME MILLISECONDS");
    }
    Thread.sleep(Long.parseLong(fields[1]));
    System.out.println("handled " + fields[0]);
  }

  /**
   * Makes a call until it succeeds, fails for good, or is no longer wanted. Weft says in the trailing
   * metadata whether the same call may be made again; an error without it comes from the connection,
   * which gRPC opens again by itself.
   */
  private <R> R retried(Function<QueueBlockingStub, R> call, BooleanSupplier wanted)
      throws InterruptedException {
    for (long pause = PAUSE_MS_MIN; ; pause = Math.min(2 * pause, PAUSE_MS_MAX)) {
      try {
        return call.apply(client.withDeadlineAfter(CALL_MS, TimeUnit.MILLISECONDS));
      } catch (StatusRuntimeException error) {
        if (!retriable(error) || !wanted.getAsBoolean()) {
          throw error;
        }
        System.err.println(error.getMessage() + "; next attempt in " + pause + " ms");
        Thread.sleep(pause);
        channel.resetConnectBackoff(); // gRPC's own pause grows to two minutes
      }
    }
  }

  private static boolean retriable(StatusRuntimeException error) {
    Metadata trailers = error.getTrailers();
    String said = trailers == null ? null : trailers.get(RETRIABLE);
    if (said != null) {
      return said.equals("true");
    }
    Status.Code code = error.getStatus().getCode();
    return code == Status.Code.UNAVAILABLE || code == Status.Code.DEADLINE_EXCEEDED;
  }

  /**
   * Handles one message and settles it. A settled message whose answer was lost is settled again:
   * that is no error.
   */
  private void work(Message message) {
    try {
      // The lease is extended while the work goes on, so that work may take longer.
      long third = Math.max(1, message.getLeaseMs() / 3);
      ScheduledFuture<?> extending =
          timers.scheduleAtFixedRate(
              () -> extend(message), third, third, TimeUnit.MILLISECONDS);
      try {
        handle(message);
      } catch (Exception error) {
        giveBack(List.of(message), String.valueOf(error.getMessage()));
        return;
      } finally {
        extending.cancel(false);
      }
      AckRequest request =
          AckRequest.newBuilder().setQueue(queue).addReceipts(message.getReceipt()).build();
      if (retried(stub -> stub.ack(request), () -> true).getLostCount() > 0) {
        System.err.println(message.getId() + " comes again: its lease was over");
      } else {
        handled.incrementAndGet();
      }
    } catch (StatusRuntimeException error) {
      System.err.println(message.getId() + " comes again: " + error.getMessage());
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
    } finally {
      free.release();
    }
  }

  /** One attempt: the next one is due soon. */
  private void extend(Message message) {
    ExtendRequest request =
        ExtendRequest.newBuilder()
            .setQueue(queue)
            .addReceipts(message.getReceipt())
            .setLeaseMs(message.getLeaseMs())
            .build();
    try {
      client.withDeadlineAfter(CALL_MS, TimeUnit.MILLISECONDS).extend(request);
    } catch (StatusRuntimeException error) {
      System.err.println("the lease was not extended: " + error.getMessage());
    }
  }

  private void giveBack(List<Message> messages, String reason) throws InterruptedException {
    NackRequest.Builder request = NackRequest.newBuilder().setQueue(queue).setReason(reason);
    messages.forEach(message -> request.addReceipts(message.getReceipt()));
    retried(stub -> stub.nack(request.build()), () -> true);
  }

  /**
   * Pops what the worker can take, until SIGTERM; then finishes what is in hand and gives back the
   * rest. The pop itself is not cancelled: it might have lent messages that nobody would see.
   */
  void run() throws InterruptedException {
    PopRequest request =
        PopRequest.newBuilder()
            .setQueue(queue)
            .setLimit(concurrency)
            .setWaitMs(POP_WAIT_MS)
            .build();
    try {
      while (!stopping) {
        List<Message> messages =
            new ArrayList<>(retried(stub -> stub.pop(request), () -> true).getMessagesList());
        while (!messages.isEmpty() && !stopping) {
          if (free.tryAcquire(PAUSE_MS_MIN, TimeUnit.MILLISECONDS)) {
            Message message = messages.remove(0);
            workers.execute(() -> work(message));
          }
        }
        if (!messages.isEmpty()) {
          giveBack(messages, "the worker stops");
          System.out.println("gave back " + messages.size());
        }
      }
    } finally {
      free.acquire(concurrency); // the work in hand is finished
      workers.shutdown();
      timers.shutdownNow();
      channel.shutdown().awaitTermination(CALL_MS, TimeUnit.MILLISECONDS);
      System.out.println("stopped after " + handled.get());
    }
  }

  public static void main(String[] arguments) throws InterruptedException {
    if (arguments.length < 2) {
      System.err.println("usage: Worker ADDRESS QUEUE [CONCURRENCY]");
      System.exit(2);
    }
    int concurrency = arguments.length > 2 ? Integer.parseInt(arguments[2]) : 4;
    Worker worker = new Worker(arguments[0], arguments[1], concurrency);
    CountDownLatch ended = new CountDownLatch(1);
    // The process ends when the hook returns, which waits for the work in hand.
    Runtime.getRuntime()
        .addShutdownHook(
            new Thread(
                () -> {
                  worker.stopping = true;
                  try {
                    ended.await();
                  } catch (InterruptedException error) {
                    Thread.currentThread().interrupt();
                  }
                }));
    try {
      worker.run();
    } catch (StatusRuntimeException error) {
      System.err.println(error.getMessage());
      ended.countDown();
      System.exit(1);
    }
    ended.countDown();
  }
}
