// Target: .npy files. A file that is taken has as many bytes as it says, and all of them can be read.
#include "input.hpp"
#include "npy_file.hpp"

#include <tenon/error.hpp>

#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenon;
  static const std::unique_ptr<FileSystem> files = make_posix_files();
  const fuzz::MemoryFile input(fuzz::text_of(data, size));
  try {
    const npy::NpyFile file(*files, input.path());
    const std::int64_t bytes = dtype_bytes(file.dtype(), file.samples() * file.elements_per_sample());
    fuzz::require(bytes > 0 && bytes < static_cast<std::int64_t>(size), "more elements than bytes");
    std::vector<std::byte> all(static_cast<std::size_t>(bytes));
    file.read(0, all);
  } catch (const FileError& error) {
    fuzz::require(false, error.what());
  } catch (const Error& error) {
    fuzz::require(error.kind() == ErrorKind::kConfig, error.what());
  }
  return 0;
}
