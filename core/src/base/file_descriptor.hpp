// Files of the operating system: a descriptor with an owner, pipes, reads that do not wait, and a whole file
// as text.
#pragma once

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace tenon::base {

/// Closes its descriptor at the end; an error of that is not reported.
class FileDescriptor {
 public:
  explicit FileDescriptor(int descriptor = -1) : descriptor_(descriptor) {}
  ~FileDescriptor() { reset(); }
  FileDescriptor(FileDescriptor&& other) noexcept : descriptor_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }

  explicit operator bool() const { return descriptor_ >= 0; }
  /// -1 when there is none.
  int get() const { return descriptor_; }
  /// The caller closes it.
  int release() { return std::exchange(descriptor_, -1); }
  void reset(int descriptor = -1) {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = descriptor;
  }

 private:
  int descriptor_;
};

/// Closed on exec. Error(kRun) when there is none: "cannot make a pipe{purpose}: ...". Its read end does not
/// wait.
struct Pipe {
  explicit Pipe(std::string_view purpose = "") {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0)
      fail_run(fmt::format("cannot make a pipe{}: {}", purpose, std::strerror(errno)));
    read_end.reset(ends[0]);
    write_end.reset(ends[1]);
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  }
  FileDescriptor read_end, write_end;
};

/// Passes available bytes of a non-blocking descriptor to `use(bytes)` as string views; closes it at its end
/// and after errors. `use` may close it, too.
template <class Use>
void drain(FileDescriptor& from, Use&& use) {
  std::array<char, 4096> block;
  while (from) {
    const ssize_t got = ::read(from.get(), block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) return from.reset();
    use(std::string_view(block.data(), got));
  }
}

/// Adds available text to `kept`, which holds the last `most` bytes.
inline void drain_last(FileDescriptor& from, std::string& kept, std::size_t most) {
  drain(from, [&](std::string_view bytes) {
    kept += bytes;
    if (kept.size() > most) kept.erase(0, kept.size() - most);
  });
}

/// A whole file as text, also one of /proc, which has no size; none when it cannot be opened. Where a limit,
/// errors with a reason, or another file system matter, see read_text in <tenon/files.hpp>.
inline std::optional<std::string> read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
}

}  // namespace tenon::base
