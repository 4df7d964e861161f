// The hash of named tensors: any change shows, order and pieces do not.
#include <tenon/checkpoint.hpp>

#include "store/testing/store_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace tenon::state_hasher_test {
namespace {

using ::testing::HasSubstr;
using testing::TinyModel;

std::string hash_of(TinyModel& model) {
  StateHasher hasher;
  for (const TensorSpec& spec : model.specs()) hasher.add(spec.name, model.view(spec.name));
  return hasher.hex();
}

TEST(StateHasher, EveryBitOfEveryTensorCounts) {
  TinyModel model(1);
  const std::string original = hash_of(model);
  EXPECT_EQ(original.size(), 32u);
  EXPECT_EQ(hash_of(model), original);
  for (const TensorSpec& spec : model.specs()) {
    std::vector<std::byte>& bytes = model.bytes(spec.name);
    for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
      bytes[bit / 8] ^= std::byte(1u << bit % 8);
      EXPECT_NE(hash_of(model), original) << spec.name << " bit " << bit;
      bytes[bit / 8] ^= std::byte(1u << bit % 8);
    }
  }
  EXPECT_EQ(hash_of(model), original);
}

TEST(StateHasher, NameTypeAndShapeCount) {
  std::vector<float> values{1, 2, 3, 4};
  const auto hash = [&](const char* name, DType dtype, const Shape& shape) {
    StateHasher hasher;
    hasher.add(name, {values.data(), shape, dtype});
    return hasher.hex();
  };
  const std::string original = hash("w", DType::kF32, Shape{4});
  EXPECT_NE(hash("v", DType::kF32, Shape{4}), original);
  EXPECT_NE(hash("w", DType::kI32, Shape{4}), original);
  EXPECT_NE(hash("w", DType::kF32, Shape{2, 2}), original);
  EXPECT_NE(hash("w", DType::kF32, Shape{4, 1}), original);
  EXPECT_NE(hash("w", DType::kF64, Shape{2}), original);
  EXPECT_NE(StateHasher().hex(), original);
}

TEST(StateHasher, OrderPiecesAndRanksDoNotCount) {
  TinyModel model(3);
  const std::string expected = hash_of(model);
  const std::vector<TensorSpec> specs = model.specs();

  StateHasher reversed;
  for (auto spec = specs.rbegin(); spec != specs.rend(); ++spec)
    reversed.add(spec->name, model.view(spec->name));
  EXPECT_EQ(reversed.hex(), expected);

  StateHasher pieces;
  for (const TensorSpec& spec : specs) {
    pieces.begin(spec.name, spec.dtype, spec.shape);
    for (const std::byte& byte : model.bytes(spec.name)) pieces.feed({&byte, 1});
    pieces.end();
  }
  EXPECT_EQ(pieces.hex(), expected);

  StateHasher ranks[2];
  for (std::size_t i = 0; i < specs.size(); ++i) ranks[i % 2].add(specs[i].name, model.view(specs[i].name));
  ranks[0].merge(ranks[1].digests());
  EXPECT_EQ(ranks[0].hex(), expected);
}

TEST(StateHasher, RefusesMisuse) {
  std::vector<float> values{1, 2};
  const TensorView view{values.data(), Shape{2}, DType::kF32};
  const auto message = [&](const std::function<void(StateHasher&)>& misuse) {
    StateHasher hasher;
    hasher.add("a b\n", view);
    try {
      misuse(hasher);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(message([&](StateHasher& h) { h.add("a b\n", view); }), HasSubstr("hashed twice"));
  EXPECT_THAT(message([&](StateHasher& h) { h.end(); }), HasSubstr("no tensor"));
  EXPECT_THAT(message([&](StateHasher& h) { h.feed({}); }), HasSubstr("outside any tensor"));
  EXPECT_THAT(message([&](StateHasher& h) { h.begin("x", DType::kF32, Shape{2}), h.end(); }),
              HasSubstr("lacks 8 bytes"));
  EXPECT_THAT(message([&](StateHasher& h) { h.begin("x", DType::kF32, Shape{1}), h.feed(view.raw()); }),
              HasSubstr("4 bytes more"));
  EXPECT_THAT(message([&](StateHasher& h) { h.begin("x", DType::kF32, Shape{2}), h.hex(); }),
              HasSubstr("still being"));
  EXPECT_THAT(message([&](StateHasher& h) { h.merge(h.digests()); }), HasSubstr("hashed twice"));
  // Every cut of another rank's text is noticed, a whole one is taken.
  StateHasher other;
  other.add("b", view);
  const std::string lines = other.digests();
  EXPECT_EQ(message([&](StateHasher& h) { h.merge(lines); }), "accepted");
  for (std::size_t size = 1; size < lines.size(); ++size) {
    EXPECT_NE(message([&](StateHasher& h) { h.merge(lines.substr(0, size)); }), "accepted") << size;
  }
}

}  // namespace
}  // namespace tenon::state_hasher_test
