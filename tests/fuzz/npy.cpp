// Target: .npy files. An accepted file has as many bytes as it claims, and all of them can be read.
#include "input.hpp"

#include <tenon/error.hpp>
#include <tenon/sdk/npy.hpp>

#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenon;
  static const std::unique_ptr<FileSystem> files = make_posix_files();
  const fuzz::MemoryFile input(fuzz::text_of(data, size));
  try {
    constexpr DType kTypes[] = {DType::kF16, DType::kF32, DType::kF64, DType::kI32,
                                DType::kI64, DType::kU8,  DType::kBool};
    const NpyFile file(*files, input.path(), "input", kTypes);
    const std::int64_t bytes = dtype_bytes(file.dtype(), file.shape().elements());
    fuzz::require(bytes > 0 && bytes < static_cast<std::int64_t>(size), "more elements than bytes");
    std::vector<std::byte> all(bytes);
    file.read(0, all);
  } catch (const FileError& error) {
    fuzz::require(false, error.what());
  } catch (const Error& error) {
    fuzz::require(error.kind() == ErrorKind::kConfig, error.what());
  }
  return 0;
}
