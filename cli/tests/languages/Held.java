/* Holds 64 MiB: "heap", objects of the JVM, or "direct", buffers outside of its heap. */
import java.nio.ByteBuffer;
import java.util.Arrays;

class Held {
    static Object[] kept = new Object[64];

    public static void main(String[] words) throws Exception {
        for (int i = 0; i < kept.length; i++) {
            if (words[0].equals("heap")) {
                byte[] array = new byte[1 << 20];
                Arrays.fill(array, (byte) 1);
                kept[i] = array;
            } else {
                ByteBuffer buffer = ByteBuffer.allocateDirect(1 << 20);
                while (buffer.hasRemaining()) buffer.put((byte) 1);
                kept[i] = buffer;
            }
        }
        System.out.println("ready");
        System.in.read();
    }
}
