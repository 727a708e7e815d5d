import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.Executors;
import java.util.stream.IntStream;
import java.util.zip.CRC32;
import java.util.zip.Deflater;
import java.util.zip.Inflater;

/**
 * Uses what a JVM gets from malloc: direct buffers, and the state of zlib's streams, in several threads.
 *
 * <p>java NativeMemory THREADS ROUNDS
 */
public final class NativeMemory {
  private static final int KEPT = 64;
  private static final int LARGEST = 64 << 10;

  private static ByteBuffer pack(byte[] bytes) {
    Deflater deflater = new Deflater(Deflater.BEST_SPEED);
    try {
      deflater.setInput(bytes);
      deflater.finish();
      ByteBuffer packed = ByteBuffer.allocateDirect(bytes.length + 1000);
      deflater.deflate(packed);
      if (!deflater.finished()) {
        throw new IllegalStateException("not all was packed");
      }
      return packed.flip();
    } finally {
      deflater.end();
    }
  }

  private static ByteBuffer unpack(ByteBuffer packed, int size) throws Exception {
    Inflater inflater = new Inflater();
    try {
      inflater.setInput(packed.duplicate());
      ByteBuffer bytes = ByteBuffer.allocateDirect(size);
      inflater.inflate(bytes);
      return bytes.flip();
    } finally {
      inflater.end();
    }
  }

  private static long work(int number, int rounds) throws Exception {
    Random dice = new Random(number);
    ArrayDeque<ByteBuffer> kept = new ArrayDeque<>();
    CRC32 sum = new CRC32();
    for (int round = 0; round < rounds; round++) {
      byte[] bytes = new byte[1 + dice.nextInt(LARGEST)];
      for (int i = 0; i < bytes.length; i++) {
        bytes[i] = (byte) (i % 100 == 0 ? dice.nextInt() : i >> 4);
      }
      ByteBuffer packed = pack(bytes);
      ByteBuffer again = unpack(packed, bytes.length);
      if (!again.equals(ByteBuffer.wrap(bytes))) {
        throw new IllegalStateException("a buffer differs");
      }
      sum.update(again);
      kept.add(packed);
      if (kept.size() > KEPT) {
        kept.remove();
      }
    }
    return sum.getValue();
  }

  public static void main(String[] arguments) throws Exception {
    int threads = Integer.parseInt(arguments[0]);
    int rounds = Integer.parseInt(arguments[1]);
    var pool = Executors.newFixedThreadPool(threads);
    var tasks = IntStream.range(0, threads).mapToObj(i -> (Callable<Long>) () -> work(i, rounds)).toList();
    long[] sums = new long[threads];
    var futures = pool.invokeAll(tasks);
    for (int i = 0; i < threads; i++) {
      sums[i] = futures.get(i).get();
    }
    pool.shutdown();
    System.out.println("sum " + Integer.toHexString(Arrays.hashCode(sums)));
  }
}
