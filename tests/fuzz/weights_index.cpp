// Target: model.safetensors.index.json. Files of an accepted index are beside it.
#include "checkpoint_folder.hpp"
#include "input.hpp"

#include <tenon/error.hpp>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenon;
  try {
    const auto places = cli::parse_weights_index(fuzz::text_of(data, size), "input");
    fuzz::require(!places.empty(), "an index without tensors");
    for (const auto& [tensor, file] : places)
      fuzz::require(file.ends_with(".safetensors") && file.find('/') == std::string::npos,
                    "a file elsewhere");
  } catch (const Error& error) {
    fuzz::require(error.kind() == ErrorKind::kConfig, error.what());
  }
  return 0;
}
