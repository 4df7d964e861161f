#include "plugin/elf_section.hpp"

#include <gtest/gtest.h>

#include <elf.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

namespace tenon::plugin {
namespace {

constexpr std::string_view kText = "tenon-abi 1\nend\n";
constexpr std::string_view kName = ".tenon_abi";

// header | section names | text | section table: null, names, text
struct Image {
  Image() {
    const std::string names = std::string("\0.shstrtab\0", 11) + std::string(kName) + '\0';
    head.e_type = ET_DYN;
    std::memcpy(head.e_ident, ELFMAG, SELFMAG);
    head.e_ident[EI_CLASS] = ELFCLASS64;
    head.e_ident[EI_DATA] = ELFDATA2LSB;
    head.e_machine = kElfMachine;
    head.e_shentsize = sizeof(Elf64_Shdr);
    head.e_shnum = 3;
    head.e_shstrndx = 1;
    sections[1].sh_type = SHT_STRTAB;
    sections[1].sh_name = 1;
    sections[1].sh_offset = sizeof head;
    sections[1].sh_size = names.size();
    sections[2].sh_type = SHT_PROGBITS;
    sections[2].sh_name = 11;
    sections[2].sh_offset = sizeof head + names.size();
    sections[2].sh_size = kText.size();
    payload = names + std::string(kText);
    head.e_shoff = sizeof head + payload.size();
  }
  std::string bytes() const {
    return std::string(reinterpret_cast<const char*>(&head), sizeof head) + payload +
           std::string(reinterpret_cast<const char*>(sections), sizeof sections);
  }
  Elf64_Ehdr head{};
  Elf64_Shdr sections[3]{};
  std::string payload;
};

SectionResult read(const std::string& bytes) {
  return read_elf_section(MemorySource(std::as_bytes(std::span(bytes))), kName);
}

TEST(ElfSection, IsFound) {
  const SectionResult result = read(Image().bytes());
  EXPECT_EQ(result.problem, "");
  EXPECT_EQ(result.text, kText);
}

// .dynstr, which names the runtime library of a sanitizer, is one.
TEST(ElfSection, TableOfStringsIsRead) {
  Image image;
  image.sections[2].sh_type = SHT_STRTAB;
  EXPECT_EQ(read(image.bytes()).text, kText);
}

TEST(ElfSection, CountAndIndexBeyondSixteenBitsAreRead) {
  Image image;
  image.sections[0].sh_size = image.head.e_shnum;
  image.sections[0].sh_link = image.head.e_shstrndx;
  image.head.e_shnum = 0;
  image.head.e_shstrndx = SHN_XINDEX;
  EXPECT_EQ(read(image.bytes()).text, kText);
}

TEST(ElfSection, Refusals) {
  struct Case {
    const char* name;
    void (*damage)(Image&);
    const char* problem;
  };
  const Case cases[] = {
    {"magic", [](Image& i) { i.head.e_ident[0] = 'X'; }, "it is not an ELF file"},
    {"class", [](Image& i) { i.head.e_ident[EI_CLASS] = ELFCLASS32; }, "it is not a 64-bit ELF file"},
    {"order", [](Image& i) { i.head.e_ident[EI_DATA] = ELFDATA2MSB; }, "it is not a little-endian ELF file"},
#if defined(__x86_64__)
    {"processor", [](Image& i) { i.head.e_machine = EM_S390; },
     "it is built for S/390 (ELF machine 22), this program runs on 64-bit x86 (ELF machine 62)"},
    {"unknown processor", [](Image& i) { i.head.e_machine = 999; },
     "it is built for ELF machine 999, this program runs on 64-bit x86 (ELF machine 62)"},
#endif
    {"type", [](Image& i) { i.head.e_type = ET_REL; }, "it is an ELF file but no shared library"},
    {"no table", [](Image& i) { i.head.e_shoff = 0; }, "its section table is missing or damaged"},
    {"entry size", [](Image& i) { i.head.e_shentsize = 1; }, "its section table is missing or damaged"},
    {"far table", [](Image& i) { i.head.e_shoff = UINT64_MAX - 8; },
     "its section table lies outside the file"},
    {"names index", [](Image& i) { i.head.e_shstrndx = 9; }, "its section table is damaged"},
    {"too many",
     [](Image& i) {
       i.head.e_shnum = 0;
       i.sections[0].sh_size = UINT64_MAX;
     },
     "its section table is damaged"},
    {"more than there are",
     [](Image& i) {
       i.head.e_shnum = 4;
       i.payload[11] = 'x';
     },
     "its section table lies outside the file"},
    {"far text", [](Image& i) { i.sections[2].sh_offset = UINT64_MAX - 2; },
     "section .tenon_abi lies outside the file"},
    {"endless text", [](Image& i) { i.sections[2].sh_size = UINT64_MAX; },
     "section .tenon_abi lies outside the file"},
    {"no bytes in the file", [](Image& i) { i.sections[2].sh_type = SHT_NOBITS; },
     "section .tenon_abi lies outside the file"},
    {"absent", [](Image& i) { i.payload[11] = 'x'; },
     "it has no section .tenon_abi, so it is not a Tenon plugin (or was built without TENON_PLUGIN)"},
    {"far name", [](Image& i) { i.sections[2].sh_name = UINT32_MAX; },
     "it has no section .tenon_abi, so it is not a Tenon plugin (or was built without TENON_PLUGIN)"},
    {"name without end", [](Image& i) { i.sections[1].sh_size -= 1; },
     "it has no section .tenon_abi, so it is not a Tenon plugin (or was built without TENON_PLUGIN)"},
  };
  for (const Case& c : cases) {
    Image image;
    c.damage(image);
    const SectionResult result = read(image.bytes());
    EXPECT_EQ(result.problem, c.problem) << c.name;
    EXPECT_EQ(result.text, "") << c.name;
  }
}

TEST(ElfSection, TooLongIsRefused) {
  Image image;
  image.sections[2].sh_size = kLongestSection + 1;
  image.payload.resize(kLongestSection * 2, 'a');
  image.head.e_shoff = sizeof image.head + image.payload.size();
  EXPECT_EQ(read(image.bytes()).problem, "section .tenon_abi is too long");
}

TEST(ElfSection, EveryTruncationIsRefused) {
  const std::string whole = Image().bytes();
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_NE(read(whole.substr(0, length)).problem, "") << length;
  }
}

// Either the text comes back, whole or damaged but within limits, or a problem does; nothing is read out of
// bounds (which the address sanitizer sees).
TEST(ElfSection, MutationsDoNoHarm) {
  std::mt19937_64 random(1);
  const std::string whole = Image().bytes();
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = whole;
    for (std::uint64_t change = 1 + random() % 6; change > 0; --change) {
      // The header and the table decide everything: mutate them more often than the payload.
      const std::size_t at = random() % 3 == 0 ? random() % 64 : random() % bytes.size();
      bytes[at] =
          random() % 2 == 0 ? static_cast<char>(random()) : static_cast<char>(random() % 2 == 0 ? 0xFF : 0);
    }
    const SectionResult result = read(bytes);
    EXPECT_TRUE(result.problem.empty() || result.text.empty());
    EXPECT_LE(result.text.size(), kLongestSection);
    refused += !result.problem.empty();
  }
  EXPECT_GT(refused, 1000);   // the mutations bite
  EXPECT_LT(refused, 20000);  // and some miss
}

// A file is read a window at a time: pieces before, in, across and beyond a window.
TEST(FileSource, ReadsWhatTheFileHolds) {
  std::mt19937_64 random(2);
  std::string bytes(70000, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("tenon_file_source_" + std::to_string(::getpid()));
  std::ofstream(path, std::ios::binary) << bytes;
  const FileSource file(path);
  ASSERT_EQ(file.problem(), "");
  ASSERT_EQ(file.size(), bytes.size());
  for (int round = 0; round < 2000; ++round) {
    const std::size_t at = random() % bytes.size();
    const std::size_t size = random() % std::min<std::size_t>(bytes.size() - at, round % 5 == 0 ? 40000 : 64);
    std::string piece(size, '\0');
    ASSERT_TRUE(file.read(at, std::as_writable_bytes(std::span(piece)))) << at << " " << size;
    ASSERT_EQ(piece, bytes.substr(at, size)) << at;
  }
  std::string beyond(8, '\0');
  EXPECT_FALSE(file.read(bytes.size() - 4, std::as_writable_bytes(std::span(beyond))));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace tenon::plugin
