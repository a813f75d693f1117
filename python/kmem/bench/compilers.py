# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Compilers as rows of measurements, each on a large source file."""

from pathlib import Path

from kmem.bench.programs import Run, run_command, times

# ---- gcc ----------------------------------------------------------------------------------------


def c_function(number: int) -> str:
    """C source with loops, branches, and calls of the function before."""
    called = f"work_{number - 1}(node->next, steps / 2)" if number % 3 else "steps"
    cases = "".join(
        f"    case {c}: node->count[{c % 4}] += sum >> {c + number % 11};"
        f" sum = sum * {2 * c + 3} + node->key; break;\n"
        for c in range(6)
    )
    return (
        f"uint64_t work_{number}(struct node *node, uint64_t steps) {{\n"
        f"  uint64_t sum = {number * 2654435761 % 4294967296}u;\n"
        "  for (uint64_t k = 0; k < steps && node; k++) {\n"
        f"    switch ((node->key ^ k) % 7) {{\n{cases}"
        f"    default: sum ^= {called}; node->key += k;\n"
        "    }\n"
        "    if (sum & 1) node = node->next; else node->count[k & 3] -= sum;\n"
        "  }\n"
        "  return sum;\n"
        "}\n"
    )


def gcc(folder: Path, scale: float) -> Run:
    source = folder / "large.c"
    head = "#include <stdint.h>\nstruct node { struct node *next; uint64_t key, count[4]; };\n"
    source.write_text(head + "".join(map(c_function, range(times(scale, 95)))))
    return run_command(folder, ["/usr/bin/gcc", "-O1", "-S", "-o", "-", str(source)])


# ---- clang++ ------------------------------------------------------------------------------------

CPP_HEAD = """\
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <regex>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>
template <int N> struct number { static constexpr int value = N; };
"""


def cpp_class(number: int) -> str:
    """C++ source that makes the compiler instantiate containers and algorithms."""
    return (
        f"struct item_{number} {{ std::string name; std::vector<number<{number}>*> parts;"
        f" std::map<std::string, std::variant<int, double, std::string>> values; }};\n"
        f"int use_{number}(std::vector<item_{number}> &items) {{\n"
        f"  std::unordered_map<std::string, std::shared_ptr<item_{number}>> known;\n"
        f"  for (auto &item : items)"
        f" known[item.name] = std::make_shared<item_{number}>(item);\n"
        f"  std::sort(items.begin(), items.end(), [](const auto &a, const auto &b)"
        f" {{ return a.name < b.name; }});\n"
        f"  std::function<int(int)> add = [&](int x)"
        f" {{ return x + static_cast<int>(known.size()) + {number}; }};\n"
        f'  return add(std::regex_match(items.front().name, std::regex("a{number}b*")));\n'
        f"}}\n"
    )


def clang_cpp(folder: Path, scale: float) -> Run:
    source = folder / "large.cpp"
    source.write_text(CPP_HEAD + "".join(map(cpp_class, range(times(scale, 3)))))
    command = ["/usr/bin/clang++", "-std=c++17", "-O1", "-S", "-o", "-", str(source)]
    return run_command(folder, command)
