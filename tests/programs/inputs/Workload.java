// SPDX-License-Identifier: Apache-2.0 OR MIT
import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.zip.Deflater;
import java.util.zip.Inflater;

/** Threads that use memory outside Java's own heap: direct buffers and zlib's state. */
public class Workload {
    private static final Map<Integer, Long> sums = new ConcurrentHashMap<>();

    private static byte[] deflate(byte[] plain) {
        Deflater deflater = new Deflater();
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        byte[] part = new byte[512];
        deflater.setInput(plain);
        deflater.finish();
        while (!deflater.finished()) {
            out.write(part, 0, deflater.deflate(part));
        }
        deflater.end();
        return out.toByteArray();
    }

    private static byte[] inflate(byte[] packed, int length) throws Exception {
        Inflater inflater = new Inflater();
        byte[] plain = new byte[length];
        inflater.setInput(packed);
        for (int done = 0; done < length; ) {
            done += inflater.inflate(plain, done, length - done);
        }
        inflater.end();
        return plain;
    }

    private static long round(int seed) throws Exception {
        String text = IntStream.range(0, 2000).mapToObj(i -> "word" + (i * seed) % 97)
            .collect(Collectors.joining(" "));
        byte[] plain = text.getBytes("UTF-8");
        byte[] again = inflate(deflate(plain), plain.length);
        if (!text.equals(new String(again, "UTF-8"))) {
            throw new IllegalStateException("deflate and inflate do not agree");
        }
        ByteBuffer buffer = ByteBuffer.allocateDirect(64 * 1024 + seed * 16);
        for (int i = 0; i < buffer.capacity() / 8; i++) {
            buffer.putLong(i * 8, (long) i * seed);
        }
        long sum = plain.length;
        for (int i = 0; i < buffer.capacity() / 8; i++) {
            sum += buffer.getLong(i * 8);
        }
        return sum;
    }

    private static long work(int number) throws Exception {
        long total = 0;
        for (int i = 1; i <= 40; i++) {
            total += round(number * 100 + i);
        }
        sums.merge(number % 4, total, Long::sum);
        return total;
    }

    public static void main(String[] arguments) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(8);
        List<Future<Long>> results = new ArrayList<>();
        for (int i = 0; i < 32; i++) {
            final int number = i;
            results.add(threads.submit(() -> work(number)));
        }
        long total = 0;
        for (Future<Long> result : results) {
            total += result.get();
        }
        threads.shutdown();
        for (int i = 0; i < 200; i++) {
            Thread thread = new Thread(() -> sums.merge(9, 1L, Long::sum));
            thread.start();
            thread.join();
        }
        System.out.println("total " + total);
        System.out.println("sums " + new TreeMap<>(sums));
    }
}
