import io.opentelemetry.context.Context;
import io.opentelemetry.sdk.trace.ReadWriteSpan;
import io.opentelemetry.sdk.trace.ReadableSpan;
import io.opentelemetry.sdk.trace.SpanProcessor;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * A span processor that says on which thread of the system a span began: {@code thread.native_id}, by which profbridge finds the
 * thread in a profile. Java has no call for that; on Linux /proc/thread-self leads to PID/task/TID. A virtual thread has no
 * thread of its own, so its spans get none.
 *
 * <pre>SdkTracerProvider.builder().addSpanProcessor(new NativeThread())</pre>
 */
public final class NativeThread implements SpanProcessor {
  private static final long UNKNOWN = -1;
  private static final ThreadLocal<Long> NATIVE_ID = ThreadLocal.withInitial(NativeThread::nativeId);

  private static long nativeId() {
    try {
      Path task = Files.readSymbolicLink(Path.of("/proc/thread-self"));
      return Long.parseLong(task.getFileName().toString());
    } catch (IOException | NumberFormatException unknown) {
      return UNKNOWN;
    }
  }

  @Override
  public void onStart(Context parent, ReadWriteSpan span) {
    // Thread.isVirtual is there from Java 21 on.
    if (Thread.currentThread().getClass().getName().equals("java.lang.VirtualThread")) {
      return;
    }
    long id = NATIVE_ID.get();
    if (id != UNKNOWN) {
      span.setAttribute("thread.native_id", id);
    }
  }

  @Override
  public boolean isStartRequired() {
    return true;
  }

  @Override
  public void onEnd(ReadableSpan span) {}

  @Override
  public boolean isEndRequired() {
    return false;
  }
}
