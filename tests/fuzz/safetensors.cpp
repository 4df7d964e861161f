// Target: safetensors files. The header of an accepted file can be written and reads as the same, and every
// tensor can be read whole.
#include "store/safetensors.hpp"
#include "input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenon;
  static const std::unique_ptr<FileSystem> files = make_posix_files();
  const fuzz::MemoryFile input(fuzz::text_of(data, size));
  try {
    const SafetensorsReader reader(files->open(input.path()), "input");
    std::int64_t bytes = 0;
    for (const SafetensorsEntry& entry : reader.entries()) {
      fuzz::require(reader.find(entry.name) == &entry, "a tensor is not found under its name");
      fuzz::require(static_cast<std::int64_t>(reader.read_all(entry).size()) == entry.bytes(),
                    "another size");
      bytes += entry.bytes();
    }
    const std::string text = safetensors_header_text(reader.entries(), reader.metadata());
    const SafetensorsHeader again = parse_safetensors_header(text, bytes, "again");
    fuzz::require(again.metadata == reader.metadata(), "other metadata after a round trip");
    fuzz::require(again.entries.size() == reader.entries().size(), "other tensors after a round trip");
    for (std::size_t i = 0; i < again.entries.size(); ++i) {
      const SafetensorsEntry &a = again.entries[i], &b = reader.entries()[i];
      fuzz::require(a.name == b.name && a.file_dtype == b.file_dtype && a.shape == b.shape &&
                        a.begin == b.begin && a.end == b.end,
                    "another tensor after a round trip");
    }
  } catch (const Error& error) {
    fuzz::require(error.kind() == ErrorKind::kRun, error.what());
  }
  return 0;
}
