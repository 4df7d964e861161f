// Boxes of tensors against loops over indices, and refusals. A device whose memory is the host's may lack the
// family.
#include "device_test.hpp"

#include <tenon/error.hpp>
#include <tenon/ops/copy.hpp>

#include <limits>

namespace tenon::testing::boxes_test {
namespace {

class Boxes : public OnEveryChoice {
 protected:
  /// Null if the device needs none.
  StridedCopyOps* ops() {
    void* const found = device_.query(StridedCopyOps::kId);
    if (found == nullptr) {
      EXPECT_EQ(device_.space(), MemorySpace::kHost);
    }
    return static_cast<StridedCopyOps*>(found);
  }
};

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

struct BoxCase {
  Shape from;
  Box source;
  Shape to;
  Box target;
};
const BoxCase kCases[] = {
    {{9}, {{3}, {5}}, {6}, {{1}, {5}}},
    {{4, 5, 17}, {{1, 2, 0}, {2, 3, 17}}, {2, 3, 17}, {{0, 0, 0}, {2, 3, 17}}},
    {{2, 3, 4, 5, 6},
     {{0, 0, 0, 4, 0}, {2, 3, 4, 1, 6}},
     {2, 4, 4, 2, 7},
     {{0, 1, 0, 0, 1}, {2, 3, 4, 1, 6}}},
    {{3, 4}, {{0, 2}, {3, 0}}, {3, 5}, {{0, 5}, {3, 0}}},
};

/// Position of index `i` of a box in its tensor.
std::size_t place(std::int64_t i, const Box& box, const Shape& tensor) {
  std::int64_t at = 0, stride = 1;
  for (int d = box.extents.rank() - 1; d >= 0; --d) {
    at += (box.offset[d] + i % box.extents[d]) * stride;
    i /= box.extents[d];
    stride *= tensor[d];
  }
  return at;
}

TEST_P(Boxes, AreCopiedAddedAndFilledAndNothingElseIs) {
  StridedCopyOps* const boxes = ops();
  if (boxes == nullptr) return;
  constexpr double kLowest = -std::numeric_limits<double>::infinity();
  for (const BoxCase& c : kCases)
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16}) {
      const auto x = numbers(c.from.elements(), "x", dtype), y = numbers(c.to.elements(), "y", dtype);
      std::vector<double> copied = y, added = y, lowered = y, cleared = y;
      for (std::int64_t i = 0; i < c.source.elements(); ++i) {
        const std::size_t to = place(i, c.target, c.to);
        copied[to] = x[place(i, c.source, c.from)], added[to] += copied[to];
        lowered[to] = kLowest, cleared[to] = 0;
      }
      const Owned from(device_, c.from, dtype, x);
      const auto after = [&](auto&& call) {
        Owned to(device_, c.to, dtype, y);
        expect_no_allocations(device_, [&] { call(TensorView(to)); });
        return to.values();
      };
      EXPECT_EQ(after([&](TensorView to) { boxes->copy(from, c.source, to, c.target); }), copied);
      EXPECT_EQ(after([&](TensorView to) { boxes->add(from, c.source, to, c.target); }),
                rounded(added, dtype));
      EXPECT_EQ(after([&](TensorView to) { boxes->fill(to, c.target, kLowest); }), lowered);
      EXPECT_EQ(after([&](TensorView to) { boxes->fill(to, c.target, 0); }), cleared);
    }
}

// Elements of one byte and of sixteen; sums of complex numbers are those of their parts.
TEST_P(Boxes, OfAnyWholeBytes) {
  StridedCopyOps* const boxes = ops();
  if (boxes == nullptr) return;
  const Box source{{1, 2}, {2, 3}}, target{{0, 1}, {2, 3}};
  const auto bytes = [](std::int64_t count, int from) {
    std::vector<std::uint8_t> result;
    for (std::int64_t i = 0; i < count; ++i) result.push_back(static_cast<std::uint8_t>(from + i));
    return result;
  };
  Owned small(device_, {3, 5}, DType::kU8), into(device_, {2, 4}, DType::kU8);
  small.put(bytes(15, 1)), into.put(bytes(8, 100));
  boxes->copy(small, source, into, target);
  EXPECT_THAT(into.elements<std::uint8_t>(), ::testing::ElementsAre(100, 8, 9, 10, 104, 13, 14, 15));
  Owned complex(device_, {3, 5}, DType::kC128), sum(device_, {2, 4}, DType::kC128);
  complex.put(std::vector<double>(numbers(30, "z", DType::kF64)));
  sum.put(std::vector<double>(numbers(16, "sum", DType::kF64)));
  std::vector<double> expected = sum.elements<double>();
  const auto parts = complex.elements<double>();
  for (std::int64_t i = 0; i < 6; ++i)
    for (std::size_t part = 0; part < 2; ++part)
      expected[2 * place(i, target, {2, 4}) + part] += parts[2 * place(i, source, {3, 5}) + part];
  boxes->add(complex, source, sum, target);
  EXPECT_EQ(sum.elements<double>(), expected);
}

TEST_P(Boxes, ThatDoNotFitAreRefused) {
  StridedCopyOps* const boxes = ops();
  if (boxes == nullptr) return;
  const Owned x(device_, {3, 4}, DType::kF32), narrow(device_, {3, 4}, DType::kBF16),
      whole(device_, {3, 4}, DType::kI32);
  const Box all{{0, 0}, {3, 4}}, beyond{{0, 1}, {3, 4}}, part{{0, 0}, {3, 3}}, line{{0}, {3}};
  EXPECT_EQ(refusal([&] { boxes->copy(x, beyond, narrow, all); }),
            device_says("copy of a box: the box of [3, 4] at [0, 1] does not lie in the tensor [3, 4]"));
  EXPECT_EQ(refusal([&] { boxes->fill(x, line, 0); }),
            device_says("fill of a box: the box of [3] at [0] does not lie in the tensor [3, 4]"));
  EXPECT_EQ(refusal([&] { boxes->add(x, all, narrow, part); }),
            device_says("sum into a box: f32 [3, 4] does not go to bf16 [3, 3]: dtypes and extents must be "
                        "equal"));
  EXPECT_NE(refusal([&] { boxes->add(whole, all, whole, all); }), "");
  EXPECT_NE(refusal([&] { boxes->fill(whole, all, 1); }), "");
  float here[12] = {};
  EXPECT_EQ(refusal([&] {
              boxes->copy({here, {3, 4}, DType::kF32}, all, x, all);
            }),
            device_says("copy of a box: the tensor [3, 4] is not in this device's memory"));
}

INSTANTIATE_TEST_SUITE_P(Device, Boxes, ::testing::ValuesIn(offered_choices()), choice_name);

}  // namespace
}  // namespace tenon::testing::boxes_test
