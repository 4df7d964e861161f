// Two hundred damaged copies of a good plugin, each inspected by the program: it loads, or it is refused by
// name; the program itself never ends by a signal. The same copies on the search path stop no other command.
#include "run_program.hpp"
#include "support.hpp"

#include <elf.h>

#include <cstring>
#include <random>

namespace tenon::integration {
namespace {

constexpr int kCopies = 200;

// Kinds of damage in turn; `random` chooses the place.
std::string damaged(std::string bytes, int copy, std::mt19937_64& random) {
  const auto below = [&](std::size_t limit) { return static_cast<std::size_t>(random() % limit); };
  Elf64_Ehdr head;
  std::memcpy(&head, bytes.data(), sizeof head);
  const auto section = [&](std::size_t index) { return head.e_shoff + index * sizeof(Elf64_Shdr); };
  const auto spoil = [&](std::size_t begin, std::size_t size) {
    for (int i = 0; i < 4; ++i) bytes[begin + below(size)] = static_cast<char>(random());
  };
  switch (copy % 8) {
    case 0:  // cut short
      bytes.resize(below(bytes.size()));
      break;
    case 1:  // bits flipped anywhere
      for (int i = 0; i < 16; ++i) bytes[below(bytes.size())] ^= static_cast<char>(1u << below(8));
      break;
    case 2: {  // a hole, as a broken copy leaves it
      const std::size_t begin = below(bytes.size());
      std::memset(bytes.data() + begin, 0, std::min<std::size_t>(4096, bytes.size() - begin));
      break;
    }
    case 3:
      spoil(0, sizeof head);
      break;
    case 4:  // program headers: where the dynamic linker maps
      spoil(head.e_phoff, std::size_t{head.e_phnum} * sizeof(Elf64_Phdr));
      break;
    case 5:  // section headers: they locate the tag
      spoil(head.e_shoff, std::size_t{head.e_shnum} * sizeof(Elf64_Shdr));
      break;
    default: {  // inside one section: .dynamic, the tag, relocations, data, ...
      Elf64_Shdr entry{};
      while (entry.sh_size == 0 || entry.sh_type == SHT_NOBITS)
        std::memcpy(&entry, bytes.data() + section(below(head.e_shnum)), sizeof entry);
      // Every second time .dynamic, which controls everything else.
      for (std::size_t i = 0; copy % 2 == 0 && i < head.e_shnum; ++i) {
        Elf64_Shdr other;
        std::memcpy(&other, bytes.data() + section(i), sizeof other);
        if (other.sh_type == SHT_DYNAMIC) entry = other;
      }
      spoil(entry.sh_offset, entry.sh_size);
      break;
    }
  }
  return bytes;
}

TEST(MutatedFiles, EachLoadsOrIsRefusedByNameAndNoneEndsTheProgramByASignal) {
  const std::string whole = read_file(fixture::path("good/good"));
  const Scratch scratch;
  std::mt19937_64 random(20261122);
  int loaded = 0, refused = 0;
  for (int copy = 0; copy < kCopies; ++copy) {
    const fs::path file = scratch / ("plugins/copy" + std::to_string(copy) + ".so");
    write_file(file, damaged(whole, copy, random));
    const Ended ended = scratch.run({"inspect", file.string()});
    ASSERT_EQ(ended.signal, 0) << file << ended.err;
    if (ended.status == 0) {
      ++loaded;
      EXPECT_EQ(ended.err, "") << file;
    } else {
      ++refused;
      EXPECT_EQ(ended.status, 3) << file << ended.err;
      EXPECT_EQ(ended.err.rfind("tenon: Cannot load '" + file.string() + "': ", 0), 0u) << ended.err;
    }
  }
  std::cout << loaded << " of " << kCopies << " copies load, " << refused << " are refused by name\n";
  // Damage that hits nothing in use is harmless; most of it hits.
  EXPECT_GT(refused, kCopies / 2);
  EXPECT_GT(loaded, 0);

  const std::map<std::string, std::string> path{{"TENON_PLUGIN_PATH", (scratch / "plugins").string()}};
  const Ended list = scratch.run({"inspect"}, path);
  EXPECT_EQ(list.status, 0) << list.err;
  EXPECT_THAT(list.out, testing::HasSubstr("adamw"));
  EXPECT_EQ(scratch.train({}, path).status, 0);
}

}  // namespace
}  // namespace tenon::integration
