// SPDX-License-Identifier: Apache-2.0 OR MIT
// Words ROUNDS: strings, lists and maps, once the compiler in the launcher has read this file. The
// objects are on Java's own heap; malloc serves the compilers, the classes and the collector.
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;

public class Words {
    record Place(String word, int line, int column) {
    }

    interface Shape {
        double area();
    }

    record Square(double side) implements Shape {
        public double area() {
            return side * side;
        }
    }

    record Circle(double radius) implements Shape {
        public double area() {
            return Math.PI * radius * radius;
        }
    }

    private static long state = 1;

    private static int draw(int limit) {
        state = state * 48_271 % 2_147_483_647;
        return (int) (state % limit);
    }

    private static String word() {
        StringBuilder text = new StringBuilder();
        for (int left = 1 + draw(12); left > 0; left--) {
            text.append((char) ('a' + draw(20)));
        }
        return text.toString();
    }

    public static void main(String[] arguments) {
        int rounds = Integer.parseInt(arguments[0]);
        for (int round = 0; round < rounds; round++) {
            List<Place> places = new ArrayList<>();
            for (int line = 0; line < 40_000; line++) {
                places.add(new Place(word(), line, draw(80)));
            }
            Map<String, List<Place>> found = places.stream().collect(Collectors.groupingBy(
                    place -> place.word().substring(0, 1 + place.word().length() / 3),
                    TreeMap::new, Collectors.toList()));
            String text = found.entrySet().stream()
                    .map(entry -> entry.getKey() + ":" + entry.getValue().size())
                    .collect(Collectors.joining(" "));
            double area = 0;
            for (Place place : places) {
                Shape shape = place.line() % 2 == 0 ? new Square(place.column())
                                                    : new Circle(place.column());
                area += shape.area();
            }
            System.out.println(round + ": " + found.size() + " beginnings, " + text.hashCode()
                    + ", " + Math.round(area));
        }
    }
}
