// Templates, overloads, a namespace without a name, and a clone made by the compiler.
#include <cstdio>
#include <string>
#include <vector>

namespace shapes {
template <typename T> __attribute__((noinline)) T largest(const std::vector<T> &all) {
    T best = all.at(0);
    for (const T &each : all)
        if (best < each) best = each;
    return best;
}
struct Square {
    int side;
    __attribute__((noinline)) int area() const { return side * side; }
    __attribute__((noinline)) int scaled(int by) const;
};
int Square::scaled(int by) const { return area() * by; }
} // namespace shapes

namespace {
__attribute__((noinline)) int hidden(int x) { return x + 1; }
} // namespace

int main(int argc, char **argv) {
    std::vector<int> numbers{argc, 2, 3};
    std::vector<std::string> names{argv[0], "b"};
    shapes::Square square{argc};
    std::printf("%d %s %d %d\n", shapes::largest(numbers), shapes::largest(names).c_str(), square.scaled(3), hidden(argc));
}
