// Tokenizer `bytes`: the id of a token is its byte. The plugin around <tenon/sdk/byte_tokenizer.hpp>.
#include <tenon/plugin.hpp>
#include <tenon/sdk/byte_tokenizer.hpp>

namespace tenon {

class Bytes final : public ByteTokenizer {
 public:
  static constexpr ComponentInfo kInfo{.id = "bytes",
                                       .summary = "text as bytes, without a vocabulary to learn"};

  explicit Bytes(const Options&) {}
};

}  // namespace tenon

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.tokenizer_bytes", .version = "0.1.0", .summary = "text as bytes"},
             tenon::Bytes)
