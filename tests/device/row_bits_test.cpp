// A row of an operator between positions (products, normalisations, pointwise maps, lookups) has the same
// bits whichever rows are computed beside it and however many: a text does not depend on the batch that it is
// drawn in, nor on the passes that read its prompt.
#include "device_test.hpp"

#include <tenon/ops/copy.hpp>
#include <tenon/ops/dense.hpp>
#include <tenon/ops/norm.hpp>

#include <cmath>

namespace tenon::testing::row_bits_test {
namespace {

constexpr std::int64_t kRows = 64;

class RowBits : public OnEveryChoice {
 protected:
  /// Calls compute(rows of the input) for some rows, in another order, and compares with all rows at once.
  template <class Compute>
  void expect_rows_alone(std::int64_t columns, DType dtype, const std::string& what, Compute compute,
                         const std::vector<std::int64_t>& counts = {1, 2, 3, 15, 16, 17, 64, 200}) {
    const std::vector<double> x = numbers(kRows * columns, what, dtype);
    const auto rows_of = [&](std::int64_t first, std::int64_t count) {
      std::vector<double> rows;
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t row = (first + 5 * i) % kRows;
        rows.insert(rows.end(), x.begin() + row * columns, x.begin() + (row + 1) * columns);
      }
      return rows;
    };
    const std::vector<std::byte> all = compute(kRows, rows_of(0, kRows));
    const std::size_t bytes = all.size() / kRows;
    for (const std::int64_t count : counts)
      for (const int threads : {1, 2}) {
        set_parallel_threads(threads);
        const std::int64_t first = 5 * (count % 7 + 3);
        const std::vector<std::byte> some = compute(count, rows_of(first, count));
        for (std::int64_t i = 0; i < count; ++i) {
          const std::size_t in_all = static_cast<std::size_t>((first / 5 + i) % kRows) * bytes,
                            here = static_cast<std::size_t>(i) * bytes;
          const bool same = std::equal(some.begin() + static_cast<std::ptrdiff_t>(here),
                                       some.begin() + static_cast<std::ptrdiff_t>(here + bytes),
                                       all.begin() + static_cast<std::ptrdiff_t>(in_all));
          EXPECT_TRUE(same) << what << " " << dtype_name(dtype) << " of " << columns << " columns: row " << i
                            << " of " << count << " has other bits";
          if (!same) return;
        }
      }
  }
};

// oneDNN's products for processors without AVX-512 choose the order of sums by the number of rows. There,
// products of few rows are computed without it.
TEST_P(RowBits, RowsOfAProductDependOnNoOtherRow) {
  if (tested_device() == "cuda") return;  // its library chooses the order of sums by the shape
  const std::string_view kernels = device_.kernel_choice();
  const bool many = !uses_onednn() || kernels.substr(0, 6) == "avx512" || kernels.substr(0, 3) == "amx";
  // Its units for bf16 are promised nothing: no machine with them has run this.
  const bool tiles = uses_onednn() && device_.features().find("amx_bf16") != std::string_view::npos;
  const struct {
    std::int64_t n, k;
  } shapes[] = {{128, 128}, {384, 128}, {100, 37}, {128, 512}, {70, 1000}, {1030, 16}, {2048, 24}};
  for (const auto& s : shapes)
    for (const DType dtype : {DType::kF32, DType::kBF16})
      for (const bool transposed : {false, true})
        for (const Epilogue map : {Epilogue::kNone, Epilogue::kGeluTanh, Epilogue::kGeluExact,
                                   Epilogue::kRelu, Epilogue::kSilu, Epilogue::kSquaredRelu}) {
          // All maps once, without and with a bias in turn.
          if (map != Epilogue::kNone && (s.n != 384 || transposed)) continue;
          if (tiles && dtype == DType::kBF16) continue;
          const bool bias = map != Epilogue::kNone || s.n == 100;
          const Owned b(device_, transposed ? Shape{s.n, s.k} : Shape{s.k, s.n}, dtype,
                        numbers(s.n * s.k, "b", dtype)),
              shift(device_, Shape{s.n}, DType::kF32, numbers(s.n, "bias", DType::kF32));
          const std::string what = "product with n " + std::to_string(s.n) + ", k " + std::to_string(s.k) +
                                   (transposed ? " transposed" : "") + ", map " +
                                   std::to_string(static_cast<int>(map));
          const auto compute = [&](std::int64_t m, const std::vector<double>& rows) {
            GemmSpec spec{.m = m, .n = s.n, .k = s.k, .transpose_b = transposed};
            spec.a = spec.b = spec.c = dtype;
            spec.bias = bias, spec.epilogue = map;
            const auto product = device_.family<Blas>().gemm(spec);
            const Owned a(device_, Shape{m, s.k}, dtype, rows), c(device_, Shape{m, s.n}, dtype),
                scratch(device_, Shape{static_cast<std::int64_t>(product->scratch_bytes())}, DType::kU8);
            product->run(a, b, c, bias ? TensorView(shift) : TensorView{}, 1.0f, scratch);
            return c.bytes();
          };
          expect_rows_alone(s.k, dtype, what, compute, {1, 2, 3, 5, 8, 15, 16, 17, 64});
          // For so many rows oneDNN is given B in an order of its own.
          if (many && map == Epilogue::kNone) expect_rows_alone(s.k, dtype, what, compute, {200, 1100});
        }
}

TEST_P(RowBits, RowsOfNormsMapsAndLookupsDependOnNoOtherRow) {
  auto& nn = device_.family<NeuralOps>();
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const std::int64_t columns : {7, 128, 700}) {
      const Owned gain(device_, Shape{columns}, DType::kF32, numbers(columns, "gain", DType::kF32)),
          shift(device_, Shape{columns}, DType::kF32, numbers(columns, "shift", DType::kF32));
      expect_rows_alone(columns, dtype, "layer norm", [&](std::int64_t m, const std::vector<double>& rows) {
        const Owned x(device_, Shape{m, columns}, dtype, rows), y(device_, Shape{m, columns}, dtype),
            mean(device_, Shape{m}, DType::kF32), rstd(device_, Shape{m}, DType::kF32);
        nn.layer_norm(x, gain, shift, 1e-5, y, mean, rstd);
        return y.bytes();
      });
      expect_rows_alone(columns, dtype, "rms norm", [&](std::int64_t m, const std::vector<double>& rows) {
        const Owned x(device_, Shape{m, columns}, dtype, rows), y(device_, Shape{m, columns}, dtype),
            rstd(device_, Shape{m}, DType::kF32);
        device_.family<NormalisationOps>().rms_norm(x, gain, 1e-5, y, rstd);
        return y.bytes();
      });
      for (const Epilogue map :
           {Epilogue::kGeluTanh, Epilogue::kGeluExact, Epilogue::kSilu, Epilogue::kSquaredRelu})
        expect_rows_alone(columns, dtype, "map", [&](std::int64_t m, const std::vector<double>& rows) {
          const Owned x(device_, Shape{m, columns}, dtype, rows), y(device_, Shape{m, columns}, dtype);
          nn.activation(map, x, y);
          return y.bytes();
        });
      const Owned table(device_, Shape{40, columns}, DType::kF32,
                        numbers(40 * columns, "table", DType::kF32));
      expect_rows_alone(1, DType::kF32, "lookup", [&](std::int64_t m, std::vector<double> ids) {
        for (double& id : ids) id = std::floor(std::abs(id) * 9);
        const Owned rows(device_, Shape{m}, DType::kI32, ids), y(device_, Shape{m, columns}, dtype);
        device_.family<EmbeddingOps>().gather(table, rows, y, false);
        return y.bytes();
      });
    }
}

INSTANTIATE_TEST_SUITE_P(Device, RowBits, ::testing::ValuesIn(offered_choices()), choice_name);

}  // namespace
}  // namespace tenon::testing::row_bits_test
