// Target: config.json of other programs, as `tenon import` reads it: JSON to a value, and the value to the
// table [model] by every importer of this tree. A table that is accepted has a type, a context and a
// vocabulary.
#include "checkpoint_folder.hpp"
#include "input.hpp"
#include "plugins/model/decoder/importer.hpp"
#include "plugins/model/gpt_neo/importer.hpp"

#include <tenon/error.hpp>

namespace {

void read_with(tenon::ModelImporter& importer, const tenon::Value& settings) {
  using namespace tenon;
  for (const std::string& architecture : importer.architectures()) {
    try {
      const ModelDescription made = importer.model(architecture, settings);
      for (const char* key : {"type", "context", "vocabulary"})
        fuzz::require(made.model.find(key) != nullptr, std::string("no ") + key);
      fuzz::require(made.model.find("vocabulary")->integer() == made.attributes.at(0).value,
                    "another vocabulary");
    } catch (const Error& error) {
      fuzz::require(error.kind() == ErrorKind::kConfig, error.what());
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenon;
  try {
    const Value settings = cli::parse_settings(fuzz::text_of(data, size), "input");
    const ResolvedOptions none("importer");
    decoder::Importer decoder(none);
    gpt_neo::Importer gpt_neo(none);
    read_with(decoder, settings);
    read_with(gpt_neo, settings);
  } catch (const Error& error) {
    fuzz::require(error.kind() == ErrorKind::kConfig, error.what());
  }
  return 0;
}
