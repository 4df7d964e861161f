// Text as bytes ("tenon.dataset.text/1"): the id of a token is its byte.
#pragma once

#include <tenon/sdk/language.hpp>

namespace tenon::text {

class ByteCodec final : public TextCodec {
 public:
  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids;
    for (const char byte : text) ids.push_back(static_cast<unsigned char>(byte));
    return ids;
  }
  /// Ids beyond a byte, which a vocabulary larger than 256 allows, become U+FFFD.
  std::string decode(std::span<const std::int32_t> ids) const override {
    std::string text;
    for (const std::int32_t id : ids) {
      if (id >= 0 && id < 256) {
        text += static_cast<char>(id);
      } else {
        text += "\xEF\xBF\xBD";
      }
    }
    return text;
  }
};

}  // namespace tenon::text
