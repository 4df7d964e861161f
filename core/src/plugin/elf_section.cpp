// Layout: System V ABI, chapter 4, in the 64-bit form of <elf.h>; including section counts that do not fit 16
// bits.
#include "plugin/elf_section.hpp"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

namespace tenon::plugin {
namespace {

constexpr std::uint64_t kMostSections = 65536;
constexpr std::uint64_t kWindow = 8192;

bool fits(const ByteSource& source, std::uint64_t offset, std::uint64_t size) {
  return offset <= source.size() && size <= source.size() - offset;
}

template <typename Record>
std::optional<Record> read_record(const ByteSource& source, std::uint64_t offset) {
  Record record;
  if (!fits(source, offset, sizeof record)) return std::nullopt;
  if (!source.read(offset, std::as_writable_bytes(std::span(&record, 1)))) return std::nullopt;
  return record;
}

std::optional<Elf64_Shdr> section_header(const ByteSource& source, const Elf64_Ehdr& head,
                                         std::uint64_t index) {
  const std::uint64_t skip = index * sizeof(Elf64_Shdr);  // index is limited: no overflow here ...
  if (head.e_shoff > source.size() || skip > source.size() - head.e_shoff)
    return std::nullopt;  // ... nor below
  return read_record<Elf64_Shdr>(source, head.e_shoff + skip);
}

bool is_named(const ByteSource& source, const Elf64_Shdr& names, std::uint64_t at, std::string_view name) {
  char buffer[64];
  const std::uint64_t length = name.size() + 1;  // with its NUL
  if (length > sizeof buffer || at > names.sh_size || length > names.sh_size - at) return false;
  if (!fits(source, names.sh_offset, names.sh_size)) return false;
  if (!source.read(names.sh_offset + at, std::as_writable_bytes(std::span(buffer, length)))) return false;
  return std::memcmp(buffer, name.data(), name.size()) == 0 && buffer[name.size()] == '\0';
}

std::string machine_name(unsigned machine) {
  constexpr std::pair<unsigned, const char*> kNames[] = {
      {EM_386, "32-bit x86"},    {EM_PPC64, "64-bit POWER"}, {EM_S390, "S/390"},   {EM_ARM, "32-bit Arm"},
      {EM_X86_64, "64-bit x86"}, {EM_AARCH64, "64-bit Arm"}, {EM_RISCV, "RISC-V"},
  };
  std::string number = "ELF machine " + std::to_string(machine);
  for (const auto& [known, name] : kNames) {
    if (known == machine) return std::string(name) + " (" + number + ")";
  }
  return number;
}

SectionResult problem(std::string text) {
  return {"", std::move(text)};
}

}  // namespace

bool MemorySource::read(std::uint64_t offset, std::span<std::byte> out) const {
  if (!fits(*this, offset, out.size())) return false;
  if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
  return true;
}

FileSource::FileSource(const std::filesystem::path& file) {
  // Without O_NONBLOCK, opening a FIFO would wait for a writer that never comes.
  file_.reset(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat facts {};
  if (!file_ || ::fstat(file_.get(), &facts) != 0) {
    problem_ = std::string("the file cannot be read: ") + std::strerror(errno);
  } else if (!S_ISREG(facts.st_mode)) {
    problem_ = "it is not a regular file";
  } else {
    size_ = static_cast<std::uint64_t>(facts.st_size);
  }
}

bool FileSource::read(std::uint64_t offset, std::span<std::byte> out) const {
  const auto in_window = [&] {
    return offset >= window_begin_ && offset - window_begin_ <= window_.size() &&
           out.size() <= window_.size() - (offset - window_begin_);
  };
  if (!in_window()) {
    if (out.size() > kWindow / 2) return read_file(offset, out);
    // Around the offset: names are before the headers that point at them.
    window_begin_ = offset - std::min(offset, kWindow / 2);
    window_.resize(std::min(kWindow, size_ - std::min(size_, window_begin_)));
    if (!read_file(window_begin_, window_) || !in_window()) {
      window_.clear();
      return false;
    }
  }
  std::copy_n(window_.begin() + static_cast<std::ptrdiff_t>(offset - window_begin_), out.size(), out.begin());
  return true;
}

bool FileSource::read_file(std::uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t got = ::pread(file_.get(), out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    offset += static_cast<std::uint64_t>(got);
    out = out.subspan(got);
  }
  return true;
}

SectionResult read_elf_section(const ByteSource& source, std::string_view name) {
  const auto head = read_record<Elf64_Ehdr>(source, 0);
  if (!head || std::memcmp(head->e_ident, ELFMAG, SELFMAG) != 0) return problem("it is not an ELF file");
  if (head->e_ident[EI_CLASS] != ELFCLASS64) return problem("it is not a 64-bit ELF file");
  if (head->e_ident[EI_DATA] != ELFDATA2LSB) return problem("it is not a little-endian ELF file");
  // The dynamic linker would only say that there is no such file.
  if (head->e_machine != kElfMachine) {
    return problem("it is built for " + machine_name(head->e_machine) + ", this program runs on " +
                   machine_name(kElfMachine));
  }
  if (head->e_type != ET_DYN) return problem("it is an ELF file but no shared library");
  if (head->e_shoff == 0 || head->e_shentsize != sizeof(Elf64_Shdr))
    return problem("its section table is missing or damaged");

  std::uint64_t count = head->e_shnum;
  std::uint64_t names_index = head->e_shstrndx;
  if (count == 0 || names_index == SHN_XINDEX) {
    const auto first = section_header(source, *head, 0);
    if (!first) return problem("its section table lies outside the file");
    if (count == 0) count = first->sh_size;
    if (names_index == SHN_XINDEX) names_index = first->sh_link;
  }
  if (count > kMostSections || names_index >= count) return problem("its section table is damaged");
  const auto names = section_header(source, *head, names_index);
  if (!names) return problem("its section table lies outside the file");

  for (std::uint64_t index = 0; index < count; ++index) {
    const auto section = section_header(source, *head, index);
    if (!section) return problem("its section table lies outside the file");
    if (!is_named(source, *names, section->sh_name, name)) continue;
    const bool has_bytes = section->sh_type == SHT_PROGBITS || section->sh_type == SHT_STRTAB;
    if (!has_bytes || !fits(source, section->sh_offset, section->sh_size)) {
      return problem("section " + std::string(name) + " lies outside the file");
    }
    if (section->sh_size > kLongestSection) return problem("section " + std::string(name) + " is too long");
    std::string text(section->sh_size, '\0');
    if (!source.read(section->sh_offset, std::as_writable_bytes(std::span(text)))) {
      return problem("section " + std::string(name) + " cannot be read");
    }
    return {std::move(text), ""};
  }
  return problem("it has no section " + std::string(name) +
                 ", so it is not a Tenon plugin (or was built without TENON_PLUGIN)");
}

}  // namespace tenon::plugin
