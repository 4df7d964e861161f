// Tokenizer bytes through the registry: ids are bytes, there are no special tokens, and other ids are
// refused.
#include <tenon/files.hpp>
#include <tenon/testing/components.hpp>
#include <tenon/testing/folders.hpp>
#include <tenon/tokenizer.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string_view>

namespace tenon {
namespace {

TEST(Bytes, C3_AreTheirOwnIds) {
  Registry registry;
  registry.discover({});
  testing::QuietHost host;
  const auto tokenizer = testing::make<Tokenizer>(registry, host, "bytes", "");
  EXPECT_EQ(tokenizer->vocabulary(), 256);
  EXPECT_EQ(tokenizer->end_of_text(), -1);
  EXPECT_TRUE(tokenizer->special().empty());
  std::string all;
  std::vector<std::int32_t> ids;
  for (int byte = 255; byte >= 0; --byte) {
    all += static_cast<char>(byte);
    ids.push_back(byte);
  }
  EXPECT_EQ(tokenizer->encode(all), ids);
  EXPECT_EQ(tokenizer->decode(ids), all);
  EXPECT_EQ(tokenizer->token_bytes(0xE9), "\xE9");
  EXPECT_EQ(tokenizer->digest(), sha256_of(std::as_bytes(std::span(std::string_view("tenon bytes")))));
  for (const std::int32_t id : {-1, 256}) {
    EXPECT_THAT(testing::error_of([&] { tokenizer->decode(std::span(&id, 1)); }, ErrorKind::kRun),
                ::testing::HasSubstr("is outside of the vocabulary: expected 0 to 255"));
    EXPECT_THAT(testing::error_of([&] { tokenizer->token_bytes(id); }, ErrorKind::kRun),
                ::testing::HasSubstr("is outside of the vocabulary"));
  }
}

}  // namespace
}  // namespace tenon
