// Holds 64 MiB in nodes of a list: "new", or "resource", from hakmem's std::pmr resource.
#include <hakmem/hakmem.hpp>

#include <array>
#include <iostream>
#include <list>
#include <memory_resource>
#include <string>
#include <string_view>

int main(int, char **words) {
  std::pmr::memory_resource *from = words[1] == std::string_view("new") ? std::pmr::new_delete_resource() : hak::get_memory_resource();
  std::pmr::list<std::array<char, 48>> held(1 << 20, {'x'}, from);
  std::cout << "ready" << std::endl;
  std::string line;
  std::getline(std::cin, line);
}
