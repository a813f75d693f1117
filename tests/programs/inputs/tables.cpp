// SPDX-License-Identifier: Apache-2.0 OR MIT
// Templates for the compiler to chew on, and at run time threads, exceptions and containers.
#include <algorithm>
#include <functional>
#include <future>
#include <iostream>
#include <map>
#include <memory>
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

using Value = std::variant<long, std::string, std::vector<long>>;

struct Node {
        std::string name;
        std::vector<std::shared_ptr<Node>> children;
        std::map<std::string, Value> attributes;
};

static std::shared_ptr<Node> grow(int depth, int &count)
{
        auto node = std::make_shared<Node>();

        node->name = "node " + std::to_string(count++);
        node->attributes["depth"] = static_cast<long>(depth);
        node->attributes["text"] = std::string(static_cast<std::size_t>(depth * 9), 'x');
        node->attributes["list"] = std::vector<long>(static_cast<std::size_t>(depth), depth);
        for (int i = 0; depth > 0 && i < 5; i++)
                node->children.push_back(grow(depth - 1, count));
        return node;
}

static long weigh(const Node &node)
{
        long weight = static_cast<long>(node.name.size());

        for (const auto &[name, value] : node.attributes)
                weight += std::visit(
                        [](const auto &held) {
                                if constexpr (std::is_same_v<std::decay_t<decltype(held)>, long>)
                                        return held;
                                else
                                        return static_cast<long>(held.size());
                        },
                        value);
        for (const auto &child : node.children)
                weight += weigh(*child);
        return weight;
}

static long count_words(int seed)
{
        static const std::regex word("([a-z]+)-([0-9]+)");
        std::unordered_map<std::string, std::set<int>> found;
        std::ostringstream text;

        for (int i = 0; i < 1500; i++)
                text << "name-" << (i * seed) % 331 << ' ' << "other-" << i << "; ";
        const std::string all = text.str();
        for (std::sregex_iterator i(all.begin(), all.end(), word), end; i != end; ++i)
                found[(*i)[1]].insert(std::stoi((*i)[2]));
        return static_cast<long>(found["name"].size() * 10000 + found["other"].size());
}

int main()
{
        std::vector<std::future<long>> futures;
        int count = 0;
        long caught = 0;

        for (int seed = 1; seed <= 4; seed++)
                futures.push_back(std::async(std::launch::async, count_words, seed));
        std::cout << "weight " << weigh(*grow(6, count)) << " of " << count << " nodes\n";
        for (auto &future : futures)
                std::cout << "words " << future.get() << '\n';
        for (long i = 0; i < 3000; i++) {
                try {
                        throw std::runtime_error("error " + std::to_string(i));
                } catch (const std::exception &error) {
                        caught += std::string(error.what()).size() > 6;
                }
        }
        std::cout << "caught " << caught << '\n';
        return 0;
}
