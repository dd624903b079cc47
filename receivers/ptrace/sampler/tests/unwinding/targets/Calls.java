/** Methods whose possible callers are known, called by a thread named "calls". */
public class Calls {
    static volatile long result;

    static long evenLeaf(long value) { return value * 31 + 7; }

    static long oddLeaf(long value) { return value ^ value >>> 3; }

    static long even(int depth, long value) {
        value = evenLeaf(value);
        return depth == 0 ? evenLeaf(value) : odd(depth - 1, value) + 1;
    }

    static long odd(int depth, long value) {
        value = oddLeaf(value) + oddLeaf(value + depth);
        return depth == 0 ? value : even(depth - 1, value) + 1;
    }

    static void calls() {
        for (int times = 0; times < 1000; times++) {
            result = even(20, result);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Thread calls = new Thread(() -> {
            while (true) {
                calls();
            }
        }, "calls");
        calls.setDaemon(true);
        // Calls the methods often enough that the compilers have compiled them.
        for (int times = 0; times < 300; times++) {
            calls();
        }
        calls.start();
        System.out.print("\n");
        System.out.flush();
        System.in.read();
    }
}
