// One good file: its bytes, its symbols, its loading.
#include "support.hpp"

#include "plugin/elf_section.hpp"
#include "plugin/loader.hpp"

#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>

namespace tenon::plugin {
namespace {

namespace fs = std::filesystem;

std::string read_file(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string output_of(const std::string& command) {
  std::FILE* pipe = ::popen(command.c_str(), "r");
  std::string text;
  for (int c; (c = std::fgetc(pipe)) != EOF;) text += static_cast<char>(c);
  EXPECT_EQ(::pclose(pipe), 0) << command;
  return text;
}

TEST(Tag, ListsWhatTheMacroWasGiven) {
  const AbiTag tag = read_abi_tag(fixture::path("good/good"));
  EXPECT_EQ(tag.plugin_id, "acme.good");
  EXPECT_EQ(tag.plugin_version, "1.2.3");
  EXPECT_EQ(tag.offers, (std::vector<Offer>{{"toy/1", "counter", {"tally"}}, {"toy/1", "twin", {}}}));
  EXPECT_EQ(abi_problem(tag, host_abi_tag(), ""), "");
}

TEST(Tag, SurvivesStrip) {
  const fixture::Folder folder("strip");
  const fs::path stripped = folder.path() / "good.so";
  output_of("strip --strip-all -o " + stripped.string() + " " + fixture::path("good/good").string());
  ASSERT_LT(fs::file_size(stripped), fs::file_size(fixture::path("good/good")));
  EXPECT_EQ(read_abi_tag(stripped).text, read_abi_tag(fixture::path("good/good")).text);
}

TEST(Tag, DamagedCopiesOfARealFileDoNoHarm) {
  const std::string whole = read_file(fixture::path("good/good"));
  const auto read = [](std::string_view bytes) {
    const SectionResult section =
        read_elf_section(MemorySource(std::as_bytes(std::span(bytes))), TENON_ABI_SECTION);
    return section.problem.empty() ? parse_abi_tag(section.text).problem : section.problem;
  };
  ASSERT_EQ(read(whole), "");
  // The section table is at the end: every truncation loses some of it.
  for (std::size_t length = 0; length < whole.size(); length += 1 + length / 512) {
    EXPECT_NE(read(std::string_view(whole).substr(0, length)), "") << length;
  }
  const std::size_t table = reinterpret_cast<const std::uint64_t*>(whole.data())[5];  // e_shoff
  std::mt19937_64 random(5);
  int refused = 0;
  std::string bytes = whole;
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::pair<std::size_t, char>> undo;
    for (int change = 0; change < 4; ++change) {
      const std::size_t at = random() % 2 == 0 ? random() % 64 : table + random() % (whole.size() - table);
      undo.emplace_back(at, bytes[at]);
      bytes[at] = static_cast<char>(random());
    }
    refused += !read(bytes).empty();
    for (auto step = undo.rbegin(); step != undo.rend(); ++step) bytes[step->first] = step->second;
  }
  EXPECT_GT(refused, 500);
  EXPECT_LT(refused, 3000);
}

TEST(Tag, OddFilesAreRefused) {
  const fixture::Folder folder("odd");
  const auto refusal = [](const fs::path& file) {
    return fixture::error_text([&] { read_abi_tag(file); }, ErrorKind::kPlugin);
  };
  const fs::path text = folder.path() / "text.so", empty = folder.path() / "empty.so",
                 fifo = folder.path() / "fifo.so";
  std::ofstream(text) << "hello";
  std::ofstream(empty).flush();
  output_of("mkfifo " + fifo.string());
  EXPECT_EQ(refusal(text),
            "Cannot load '" + text.string() + "': it is not an ELF file. No plugin code was run.");
  EXPECT_EQ(refusal(empty),
            "Cannot load '" + empty.string() + "': it is not an ELF file. No plugin code was run.");
  EXPECT_EQ(refusal(fifo),
            "Cannot load '" + fifo.string() + "': it is not a regular file. No plugin code was run.");
  EXPECT_EQ(refusal("/no/such.so"),
            "Cannot load '/no/such.so': the file cannot be read: No such file or directory. No plugin code "
            "was run.");
}

TEST(Symbols, ExactlyOneIsExported) {
  for (const char* name : {"good/good", "good/twin"}) {
    const std::string symbols =
        output_of("nm -D --defined-only --format=posix " + fixture::path(name).string());
    EXPECT_EQ(symbols.substr(0, symbols.find(' ')), "tenon_plugin_v1");
    EXPECT_EQ(std::count(symbols.begin(), symbols.end(), '\n'), 1) << symbols;
  }
}

TEST(Loader, OpensInitialisesAndPins) {
  ::unsetenv("TENON_TEST_GOOD");
  const fs::path link = fs::path(FIXTURES) / "good" / ".." / "good" / "good.so";
  const OpenPlugin plugin = open_plugin(link);
  EXPECT_EQ(plugin.file, fixture::path("good/good"));
  EXPECT_STREQ(plugin.descriptor->id, "acme.good");
  EXPECT_STREQ(plugin.descriptor->vendor, "Acme \"Tools\"");
  EXPECT_EQ(plugin.tag.text, plugin.descriptor->abi_tag);
  EXPECT_EQ(std::getenv("TENON_TEST_GOOD"), nullptr);
  init_plugin(*plugin.descriptor, plugin.file);
  EXPECT_STREQ(std::getenv("TENON_TEST_GOOD"), "initialised");
  shutdown_plugin(*plugin.descriptor);
  EXPECT_STREQ(std::getenv("TENON_TEST_GOOD"), "shut down");

  // Closing every handle that we could have does not unmap it.
  void* handle = ::dlopen(plugin.file.c_str(), RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(handle, nullptr);
  for (int i = 0; i < 5; ++i) ::dlclose(handle);
  handle = ::dlopen(plugin.file.c_str(), RTLD_NOW | RTLD_NOLOAD);
  EXPECT_NE(handle, nullptr);
  EXPECT_STREQ(plugin.descriptor->id, "acme.good");
}

TEST(Loader, AbsentFile) {
  EXPECT_EQ(fixture::error_text([] { open_plugin("/no/such.so"); }, ErrorKind::kPlugin),
            "Cannot load '/no/such.so': No such file or directory.");
}

}  // namespace
}  // namespace tenon::plugin
