"""Writes a C++ file over the standard library: class templates, maps, visitors and lambdas, each instantiated with types of its own.

    make_cpp.py CLASSES
"""
import random
import sys

HEAD = """#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>
#include <unordered_map>
#include <variant>
#include <vector>

template <unsigned N> struct depth {
  template <class T> static auto nest(T value) { return depth<N - 1>::nest(std::make_tuple(value, N)); }
};
template <> struct depth<0> {
  template <class T> static auto nest(T value) { return value; }
};
"""
CLASS = """
struct key_{n} {{
  {members}
  auto tied() const {{ return std::tie({names}); }}
  bool operator<(const key_{n} &other) const {{ return tied() < other.tied(); }}
}};

template <class T> class store_{n} {{
  std::map<key_{n}, std::vector<T>> sorted;
  std::unordered_map<std::string, std::shared_ptr<T>> named;
  std::vector<std::variant<std::shared_ptr<T>, std::string, key_{n}>> mixed;

public:
  void add(key_{n} key, T value) {{
    sorted[key].push_back(value);
    auto shared = named["{n}:" + std::to_string(sorted.size())] = std::make_shared<T>(std::move(value));
    mixed.emplace_back(std::move(shared));
    mixed.emplace_back(std::move(key));
  }}
  std::size_t count(const std::function<bool(const T &)> &wanted) const {{
    std::size_t found = 0;
    for (const auto &[key, values] : sorted)
      found += std::count_if(values.begin(), values.end(), wanted);
    for (const auto &one : mixed)
      found += std::visit([](const auto &value) {{ return sizeof(value) % {a}; }}, one);
    return found + std::tuple_size_v<decltype(depth<{depth}>::nest(std::declval<T>()))>;
  }}
}};

std::size_t use_{n}(unsigned steps) {{
  store_{n}<{type}> store;
  for (unsigned i = 0; i < steps; i++)
    store.add(key_{n}{{}}, {type}());
  std::vector<std::pair<unsigned, std::string>> order;
  for (unsigned i = 0; i < steps; i++)
    order.emplace_back(i * {b}u % {a}u, std::string(i % {a}, 'x'));
  std::sort(order.begin(), order.end(), [](const auto &x, const auto &y) {{ return x.second.size() + x.first < y.second.size() + y.first; }});
  return store.count([](const {type} &one) {{ return one == {type}(); }}) +
         std::accumulate(order.begin(), order.end(), std::size_t{{}}, [](auto sum, const auto &one) {{ return sum * {b}u + one.first; }});
}}
"""
TYPES = ("std::string", "std::vector<int>", "std::map<int, std::string>", "std::pair<long, std::string>", "std::vector<std::string>")
MEMBERS = ("int", "long", "std::string", "unsigned char", "std::vector<char>")


def one_class(n, dice):
    names = [f"m{i}" for i in range(dice.randint(2, 6))]
    members = "\n  ".join(f"{dice.choice(MEMBERS)} {name}{{}};" for name in names)
    return CLASS.format(
        n=n, members=members, names=", ".join(names), type=dice.choice(TYPES), a=dice.randint(3, 99), b=dice.randint(100, 9999),
        depth=dice.randint(4, 12),
    )


dice = random.Random(1)
print(HEAD + "".join(one_class(n, dice) for n in range(int(sys.argv[1]))))
