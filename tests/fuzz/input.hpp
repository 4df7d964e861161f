// Shared by the fuzz targets: an input as a file with a path, and a check that ends the process if a property
// does not hold. A target accepts any bytes; it may refuse them only with the error that its reader
// documents.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace tenon::fuzz {

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// Bytes in a file in memory; its path can be opened until the object is gone.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes) : descriptor_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    if (descriptor_ < 0) std::abort();
    for (std::size_t done = 0; done < bytes.size();) {
      const ssize_t now = ::write(descriptor_, bytes.data() + done, bytes.size() - done);
      if (now <= 0) std::abort();
      done += now;
    }
  }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

/// Ends the process with the words; the fuzzer then keeps the input.
inline void require(bool holds, const std::string& words) {
  if (holds) return;
  std::fprintf(stderr, "property broken: %s\n", words.c_str());
  std::abort();
}

}  // namespace tenon::fuzz
