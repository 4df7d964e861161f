// Opening and recognising token files. The header of llm.c: 256 int32 {magic, version, count, 0, ...}.
#include "token_file.hpp"

#include <tenon/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <system_error>
#include <utility>

namespace tenon::text {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

constexpr std::int64_t kHeaderBytes = 1024;

struct Layout {
  std::int32_t magic;
  std::int32_t version;
  int width;
};
constexpr std::array<Layout, 2> kLayouts{{{20240520, 1, 2}, {20240801, 7, 4}}};  // GPT-2, Llama 3

/// Other files of the same project, which are easily passed by mistake.
const char* other_file(std::int32_t magic) {
  switch (magic) {
    case 20240522:
      return "; this is an llm.c evaluation file (HellaSwag), which has no running text";
    case 20240326:
      return "; this is an llm.c model checkpoint, not data";
    case 20240527:
      return "; this is an llm.c training state, not data";
    default:
      return "";
  }
}

[[noreturn]] void fail_system(const std::string& path, const char* what) {
  fail_config(
      fmt::format("data file '{}': cannot {}: {}", path, what, std::generic_category().message(errno)));
}

}  // namespace

TokenFile::TokenFile(const std::string& path, std::string_view format) : path_(path) {
  map();
  try {
    recognise(format);
  } catch (...) {
    ::munmap(const_cast<std::byte*>(data_), bytes_);
    throw;
  }
}

TokenFile::~TokenFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), bytes_);
}

TokenFile::TokenFile(TokenFile&& other) noexcept
    : path_(std::move(other.path_)),
      format_(other.format_),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(other.bytes_),
      tokens_(other.tokens_),
      count_(other.count_),
      width_(other.width_) {}

void TokenFile::map() {
  const int descriptor = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) fail_system(path_, "open it");
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) {
    ::close(descriptor);
    fail_system(path_, "read its size");
  }
  if (!S_ISREG(status.st_mode) || status.st_size == 0) {
    ::close(descriptor);
    fail_config(fmt::format("data file '{}': expected a file with tokens, found {}", path_,
                            S_ISDIR(status.st_mode)   ? "a folder"
                            : S_ISREG(status.st_mode) ? "an empty file"
                                                      : "a device or pipe, which cannot be mapped"));
  }
  bytes_ = status.st_size;
  void* memory = ::mmap(nullptr, static_cast<std::size_t>(bytes_), PROT_READ, MAP_PRIVATE, descriptor, 0);
  const int code = errno;
  ::close(descriptor);
  if (memory == MAP_FAILED) {
    errno = code;
    fail_system(path_, "map it into memory");
  }
  data_ = static_cast<const std::byte*>(memory);
}

void TokenFile::recognise(std::string_view format) {
  std::int32_t start = 0;
  if (bytes_ >= 4) std::memcpy(&start, data_, 4);
  const bool llmc_magic =
      start == kLayouts[0].magic || start == kLayouts[1].magic || *other_file(start) != '\0';
  if (format == "auto") {
    format = !path_.ends_with(".bin") ? "bytes" : llmc_magic ? "llmc" : "nanogpt";
  }
  if (format == "llmc") {
    format_ = "llmc";
    read_llmc_header();
    return;
  }
  tokens_ = data_;
  if (format == "nanogpt") {
    format_ = "nanogpt";
    width_ = 2;
    if (llmc_magic && bytes_ >= kHeaderBytes) {
      fail_config(fmt::format(
          "data file '{}': expected headerless uint16 tokens (format nanogpt), found the llm.c magic "
          "number {}; set format = \"llmc\"",
          path_, start));
    }
    if (bytes_ % 2 != 0) {
      fail_config(fmt::format(
          "data file '{}': expected an even number of bytes (uint16 tokens, format nanogpt), found "
          "{} bytes; the file is cut off, or it is text and needs format = \"bytes\"",
          path_, bytes_));
    }
  } else {
    format_ = "bytes";
  }
  count_ = bytes_ / width_;
}

void TokenFile::read_llmc_header() {
  if (bytes_ < kHeaderBytes) {
    fail_config(fmt::format("data file '{}': expected an llm.c header of {} bytes, found a file of {} bytes",
                            path_, kHeaderBytes, bytes_));
  }
  std::int32_t header[3] = {};
  std::memcpy(header, data_, sizeof header);
  const Layout* layout = nullptr;
  for (const Layout& known : kLayouts) {
    if (known.magic == header[0]) layout = &known;
  }
  if (layout == nullptr) {
    fail_config(fmt::format(
        "data file '{}': expected the llm.c magic number {} (uint16 tokens) or {} (uint32 tokens), "
        "found {}{}",
        path_, kLayouts[0].magic, kLayouts[1].magic, header[0], other_file(header[0])));
  }
  if (header[1] != layout->version) {
    fail_config(fmt::format(
        "data file '{}': llm.c magic number {}: expected version {}, found {}; write the file again "
        "with a current version of llm.c's data scripts",
        path_, layout->magic, layout->version, header[1]));
  }
  if (header[2] <= 0) {
    fail_config(
        fmt::format("data file '{}': llm.c header: expected a number of tokens from 1 to 2^31 - 1, found {}",
                    path_, header[2]));
  }
  const std::int64_t expected = kHeaderBytes + std::int64_t{header[2]} * layout->width;
  if (bytes_ != expected) {
    fail_config(fmt::format(
        "data file '{}': {} tokens of {} bytes after a header of {}: expected {} bytes, found {}; "
        "the file is {}",
        path_, header[2], layout->width, kHeaderBytes, expected, bytes_,
        bytes_ < expected ? "cut off" : "longer than it says"));
  }
  width_ = layout->width;
  count_ = header[2];
  tokens_ = data_ + kHeaderBytes;
}

void TokenFile::copy(std::int64_t first, std::int64_t count, std::int32_t* out) const noexcept {
  const auto widen = [&](auto sample) {
    for (std::int64_t i = 0; i < count; ++i) {
      std::memcpy(&sample, tokens_ + (first + i) * width_, sizeof sample);
      out[i] = static_cast<std::int32_t>(sample);
    }
  };
  if (width_ == 1) widen(std::uint8_t{});
  if (width_ == 2) widen(std::uint16_t{});
  if (width_ == 4) widen(std::uint32_t{});
}

void TokenFile::check_tokens(std::int64_t vocabulary) const {
  if (plain_bytes() && vocabulary >= 256) return;
  for (std::int64_t i = 0; i < count_; ++i) {
    if (token(i) >= vocabulary) {
      fail_config(
          fmt::format("data file '{}': token {} at position {} lies outside of the vocabulary of {}; set "
                      "vocabulary to that of the tokenizer that wrote the file",
                      path_, token(i), i, vocabulary));
    }
  }
}

}  // namespace tenon::text
