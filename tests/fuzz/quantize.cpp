// Target: the input of `tenon quantize`, .npy and .safetensors. An accepted matrix has as many elements as it
// claims, and its folder is within the folder of results.
#include "input.hpp"
#include "quantize_input.hpp"

#include <tenon/error.hpp>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenon;
  static const std::unique_ptr<FileSystem> files = make_posix_files();
  const std::string_view bytes = fuzz::text_of(data, size);
  const fuzz::MemoryFile input(bytes);
  const cli::SourceKind kind =
      bytes.starts_with("\x93NUM") ? cli::SourceKind::kNpy : cli::SourceKind::kSafetensors;
  try {
    const cli::MatrixSource source(*files, input.path(), kind, "");
    std::vector<std::string> names;
    for (std::size_t i = 0; i < source.size(); ++i) {
      const cli::SourceMatrix matrix = source.read(i);
      fuzz::require(matrix.rows > 0 && matrix.columns > 0, "an empty matrix");
      fuzz::require(matrix.rows * matrix.columns == static_cast<std::int64_t>(matrix.values.size()),
                    "another number of elements");
      fuzz::require(matrix.values.size() <= size, "more elements than bytes");
      names.push_back(matrix.name);
    }
    for (const std::string& folder : cli::folder_names(names)) {
      fuzz::require(!folder.empty() && folder[0] != '.' && folder.find('/') == std::string::npos,
                    "a folder that leads out");
    }
  } catch (const Error& error) {
    fuzz::require(error.kind() == ErrorKind::kConfig, error.what());
  }
  return 0;
}
