// Reads through zlib's gz interface, which also accepts plain files. Memory grows with the content of the
// file, never with the size that its header claims.
#include "idx.hpp"

#include <tenon/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>
#include <system_error>

namespace tenon::mnist {
namespace {

constexpr std::uint32_t kUnsignedBytes = 0x08;
constexpr std::int64_t kFirstPiece = 1 << 16;
constexpr std::int64_t kLargest = std::int64_t{1} << 36;  // 64 GiB: beyond any set of this kind

const char* usual_content(std::uint32_t magic) {
  switch (magic) {
    case 0x00000801:
      return " (a file of labels)";
    case 0x00000803:
      return " (a file of images)";
    default:
      return magic >> 8 == 0x0000000D ? " (real numbers)" : "";
  }
}

/// Returns zlib's message without its name for the file, "<fd:4>: ".
std::string reason(std::string_view text) {
  const std::size_t end = text.find(">: ");
  return std::string(end == std::string_view::npos ? text : text.substr(end + 3));
}

/// A gzip or plain file; every error names it.
class Input {
 public:
  explicit Input(const std::string& path) : path_(path) {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) fail("cannot open it: " + std::generic_category().message(errno));
    struct stat status {};
    if (::fstat(descriptor, &status) == 0 && S_ISDIR(status.st_mode)) {
      ::close(descriptor);
      fail("expected an IDX file, found a folder");
    }
    file_.reset(::gzdopen(descriptor, "rb"));
    if (file_ == nullptr) {
      ::close(descriptor);
      fail("cannot read it: out of memory");
    }
    ::gzbuffer(file_.get(), 1 << 17);
  }

  [[noreturn]] void fail(const std::string& text) const {
    fail_config(fmt::format("data file '{}': {}", path_, text));
  }

  /// Reads at most `size` bytes and returns how many there were.
  std::int64_t read(std::uint8_t* out, std::int64_t size) {
    std::int64_t done = 0;
    while (done < size) {
      const auto piece = static_cast<unsigned>(std::min<std::int64_t>(size - done, 1 << 24));
      const int got = ::gzread(file_.get(), out + done, piece);
      int code = Z_OK;
      const char* text = ::gzerror(file_.get(), &code);
      if (code == Z_BUF_ERROR) fail("the gzip stream is cut off");
      if (got < 0 || (code != Z_OK && code != Z_STREAM_END)) {
        fail(fmt::format("the gzip stream is damaged: {}",
                         code == Z_ERRNO ? std::generic_category().message(errno) : reason(text)));
      }
      if (got == 0) break;
      done += got;
    }
    return done;
  }

 private:
  struct Close {
    void operator()(gzFile file) const { ::gzclose(file); }
  };
  std::string path_;
  std::unique_ptr<gzFile_s, Close> file_;
};

std::uint32_t big_endian(const std::uint8_t* bytes) {
  return std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 | std::uint32_t{bytes[2]} << 8 |
         std::uint32_t{bytes[3]};
}

std::string extents_text(const std::vector<std::int64_t>& extents) {
  return fmt::format("{}", fmt::join(extents, " x "));
}

std::vector<std::int64_t> read_header(Input& input, int dimensions, const char* what) {
  const std::uint32_t expected = kUnsignedBytes << 8 | static_cast<std::uint32_t>(dimensions);
  std::vector<std::uint8_t> header(4 + 4 * dimensions);
  const std::int64_t got = input.read(header.data(), static_cast<std::int64_t>(header.size()));
  if (got == 0) input.fail(fmt::format("expected an IDX file of {}, found an empty file", what));
  if (got >= 4 && big_endian(header.data()) != expected) {
    const std::uint32_t found = big_endian(header.data());
    input.fail(fmt::format("expected an IDX file of {}, magic number 0x{:08x}; found 0x{:08x}{}", what,
                           expected, found, usual_content(found)));
  }
  if (got < static_cast<std::int64_t>(header.size())) {
    input.fail(fmt::format("expected an IDX header of {} bytes, found {} bytes; the file is cut off",
                           header.size(), got));
  }
  std::vector<std::int64_t> extents;
  for (int i = 0; i < dimensions; ++i)
    extents.push_back(big_endian(header.data() + 4 + std::ptrdiff_t{4} * i));
  return extents;
}

}  // namespace

IdxArray read_idx(const std::string& path, int dimensions, const char* what) {
  Input input(path);
  IdxArray array;
  array.extents = read_header(input, dimensions, what);
  std::int64_t size = 1;
  for (const std::int64_t extent : array.extents) {
    if (extent == 0 || extent > kLargest / size) {
      input.fail(fmt::format("the header says {} {}; expected at least one and at most 2^36 bytes of them",
                             extents_text(array.extents), what));
    }
    size *= extent;
  }
  std::int64_t done = 0;
  while (done < size) {
    const std::int64_t piece = std::min(std::max(kFirstPiece, done), size - done);
    array.bytes.resize(done + piece);
    const std::int64_t got = input.read(array.bytes.data() + done, piece);
    done += got;
    if (got < piece) {
      input.fail(fmt::format("the header says {} {}, {} bytes; found {} bytes after it; the file is cut off",
                             extents_text(array.extents), what, size, done));
    }
  }
  std::uint8_t more = 0;
  if (input.read(&more, 1) != 0) {
    input.fail(
        fmt::format("the header says {} {}, {} bytes; found more after them; the file is longer than it says",
                    extents_text(array.extents), what, size));
  }
  return array;
}

}  // namespace tenon::mnist
