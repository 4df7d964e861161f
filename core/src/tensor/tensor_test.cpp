// Element types, shapes and views: facts by table, refusals by message.
#include <tenon/error.hpp>
#include <tenon/tensor.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace tenon {
namespace {

using testing::HasSubstr;

template <typename F>
std::string message_of(F&& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

struct DTypeCase {
  DType dtype;
  const char* name;
  int bits;
  std::int64_t bytes_of_5;
  bool real;
  bool complex;
};

TEST(DType, FactsMatchTheNamesOnDisk) {
  const DTypeCase cases[] = {
      {DType::kF32, "f32", 32, 20, true, false},      {DType::kF64, "f64", 64, 40, true, false},
      {DType::kBF16, "bf16", 16, 10, true, false},    {DType::kF16, "f16", 16, 10, true, false},
      {DType::kC64, "c64", 64, 40, false, true},      {DType::kC128, "c128", 128, 80, false, true},
      {DType::kI8, "i8", 8, 5, false, false},         {DType::kU64, "u64", 64, 40, false, false},
      {DType::kBool, "bool", 8, 5, false, false},     {DType::kF8E4M3, "f8_e4m3", 8, 5, true, false},
      {DType::kF4E2M1, "f4_e2m1", 4, 3, true, false}, {DType::kF6E2M3, "f6_e2m3", 6, 4, true, false},
  };
  for (const DTypeCase& c : cases) {
    SCOPED_TRACE(c.name);
    EXPECT_EQ(dtype_name(c.dtype), c.name);
    EXPECT_EQ(dtype_from_name(c.name), c.dtype);
    EXPECT_EQ(dtype_bits(c.dtype), c.bits);
    EXPECT_EQ(dtype_bytes(c.dtype, 5), c.bytes_of_5);
    EXPECT_EQ(dtype_bytes(c.dtype, 0), 0);
    EXPECT_EQ(dtype_is_real(c.dtype), c.real);
    EXPECT_EQ(dtype_is_complex(c.dtype), c.complex);
  }
  for (int i = 0; i <= static_cast<int>(DType::kF6E3M2); ++i) {
    EXPECT_EQ(dtype_from_name(dtype_name(static_cast<DType>(i))), static_cast<DType>(i));
  }
}

TEST(DType, SubByteSizesRoundUpForEveryCount) {
  for (const DType dtype : {DType::kF4E2M1, DType::kF6E2M3}) {
    for (std::int64_t n = 0; n < 100; ++n) {
      EXPECT_EQ(dtype_bytes(dtype, n), (n * dtype_bits(dtype) + 7) / 8) << n;
    }
  }
}

TEST(DType, OutsideValuesAreHarmless) {
  const auto outside = static_cast<DType>(200);
  EXPECT_EQ(dtype_bits(outside), 0);
  EXPECT_EQ(dtype_name(outside), "unknown");
  EXPECT_EQ(dtype_bytes(DType::kF64, std::numeric_limits<std::int64_t>::max()),
            std::numeric_limits<std::int64_t>::max());
  EXPECT_THAT(message_of([] { dtype_from_name("float"); }),
              HasSubstr("unknown element type 'float'; expected one of f32, f64"));
}

TEST(Shape, CountsPrintsAndCompares) {
  EXPECT_EQ(Shape{}.elements(), 1);
  EXPECT_EQ(Shape{}.text(), "[]");
  EXPECT_EQ((Shape{12, 64, 128}).text(), "[12, 64, 128]");
  EXPECT_EQ((Shape{12, 64, 128}).elements(), 98304);
  EXPECT_EQ((Shape{3, 0, 7}).elements(), 0);
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  EXPECT_FALSE((Shape{2, 3}) == (Shape{2, 3, 1}));
  EXPECT_FALSE((Shape{2, 3}) == (Shape{3, 2}));
}

TEST(Shape, RefusesWhatCannotBeATensor) {
  EXPECT_THAT(message_of([] { Shape({1, 1, 1, 1, 1, 1, 1, 1, 1}); }), HasSubstr("9 dimensions; at most 8"));
  EXPECT_THAT(message_of([] { Shape({2, -1}); }), HasSubstr("[2, -1] has a negative extent"));
  EXPECT_THAT(message_of([] { Shape({1LL << 40, 1LL << 40}); }), HasSubstr("more than 2^63 - 1"));
  EXPECT_EQ((Shape{1LL << 40, 1LL << 40, 0}).elements(), 0);
  Shape edited{1LL << 40, 1};
  edited[1] = 1LL << 40;
  EXPECT_EQ(edited.elements(), std::numeric_limits<std::int64_t>::max());
}

TEST(TensorView, RowsAndReshape) {
  std::vector<float> values{0, 1, 2, 3, 4, 5};
  const TensorView view{values.data(), Shape{3, 2}, DType::kF32};
  EXPECT_EQ(view.bytes(), 24);
  const TensorView middle = view.rows(1, 3);
  EXPECT_EQ(middle.shape, (Shape{2, 2}));
  EXPECT_EQ(middle.span<float>()[0], 2.0f);
  EXPECT_EQ(view.rows(3, 3).elements(), 0);
  EXPECT_EQ(view.reshaped(Shape{6}).span<float>()[5], 5.0f);
  EXPECT_THAT(message_of([&] { view.rows(1, 4); }), HasSubstr("rows [1, 4) are outside"));
  EXPECT_THAT(message_of([&] { view.rows(-1, 1); }), HasSubstr("outside"));
  EXPECT_THAT(message_of([&] { view.reshaped(Shape{5}); }), HasSubstr("6 and 5 elements"));
  const TensorView scalar{values.data(), Shape{}, DType::kF32};
  EXPECT_THAT(message_of([&] { scalar.rows(0, 0); }), HasSubstr("outside"));
  EXPECT_TRUE((TensorView{nullptr, Shape{4, 0}, DType::kF32}).rows(1, 2).empty());
}

TEST(TensorView, PackedRowsMustStartOnAByte) {
  std::vector<std::uint8_t> codes(6);
  const TensorView even{codes.data(), Shape{3, 4}, DType::kF4E2M1};
  EXPECT_EQ(even.rows(1, 2).data, codes.data() + 2);
  const TensorView odd{codes.data(), Shape{4, 3}, DType::kF4E2M1};
  EXPECT_EQ(odd.rows(2, 4).data, codes.data() + 3);
  EXPECT_THAT(message_of([&] { odd.rows(1, 2); }), HasSubstr("does not start on a byte"));
}

}  // namespace
}  // namespace tenon
