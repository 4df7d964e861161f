// Target: tokenizer.json. A file that is accepted gives back any bytes, never gives a special token for a
// text, and is the same tokenizer when it is written and read again.
#include "encoder.hpp"
#include "input.hpp"

#include <tenon/error.hpp>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenon;
  const std::string_view input = fuzz::text_of(data, size);
  try {
    const bpe::Encoder encoder(bpe::read_tokenizer_json(input, "input"), "input");
    const std::string texts[] = {"a text, 12 and more\n", "\xC3\x28\xFF  \xE4\xB8\x80",
                                 std::string(input.substr(0, 200))};
    for (const std::string& text : texts) {
      const std::vector<std::int32_t> ids = encoder.encode(text);
      fuzz::require(encoder.decode(ids) == text, "other bytes come back");
      for (const std::int32_t id : ids)
        for (const SpecialToken& token : encoder.description().special)
          fuzz::require(token.id != id, "a text gives a special token");
    }
    const std::string written = bpe::write_tokenizer_json(encoder.description());
    const bpe::Encoder again(bpe::read_tokenizer_json(written, "written"), "written");
    fuzz::require(again.digest() == encoder.digest(), "another tokenizer is written");
  } catch (const Error& error) {
    fuzz::require(error.kind() == ErrorKind::kConfig || error.kind() == ErrorKind::kRun, error.what());
  }
  return 0;
}
