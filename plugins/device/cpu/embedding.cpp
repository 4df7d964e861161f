// Gather and scatter of rows (family EmbeddingOps). Scatter shares columns among threads, never rows:
// frequent ids would leave one thread with most of the work, and every sum keeps the order of the ids.
#include "common.hpp"

#include <cstring>

namespace tenon::cpu {
namespace {

using kernels::Arith;
using kernels::Bf16;

class CpuEmbeddingOps final : public EmbeddingOps {
 public:
  explicit CpuEmbeddingOps(const Kernels& kernels) : kernels_(kernels) {}

  void gather(TensorView table, TensorView ids, TensorView out, bool accumulate) override {
    const std::int64_t count = ids.elements();
    const Matrix shape = as_matrix(table);
    const std::int64_t rows = shape.rows, width = shape.columns;
    const std::int32_t* id = checked<std::int32_t>(ids, count, "gather", "ids");
    check_indices(id, count, 0, rows, "gather", "ids");
    with_storage(out.dtype, "gather", [&](auto tag) {
      using S = typename decltype(tag)::type;
      const auto* source = checked<Arith<S>>(table, rows * width, "gather", "table");
      S* target = checked<S>(out, count * width, "gather", "out");
      parallel_for(count, row_block(width), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          const auto* row = source + id[i] * width;
          S* to = target + i * width;
          if (accumulate) {
            kernels_.ops<S>().elementwise.add_bias(to, row, to, 1, width);
          } else {
            convert_block(kernels_, row, to, width);
          }
        }
      });
    });
  }

  void scatter_add(TensorView dy, TensorView ids, TensorView gradient, TensorView) override {
    const std::int64_t count = ids.elements();
    const Matrix shape = as_matrix(gradient);
    const std::int64_t rows = shape.rows, width = shape.columns;
    const std::int32_t* id = checked<std::int32_t>(ids, count, "scatter_add", "ids");
    check_indices(id, count, 0, rows, "scatter_add", "ids");
    with_storage(dy.dtype, "scatter_add", [&](auto tag) {
      using S = typename decltype(tag)::type;
      using A = Arith<S>;
      const S* source = checked<S>(dy, count * width, "scatter_add", "dy");
      A* target = checked<A>(gradient, rows * width, "scatter_add", "gradient");
      parallel_for(width, kColumnBlock, [&](std::int64_t begin, std::int64_t end) {
        const auto add = kernels_.ops<A>().elementwise.add;
        A wide[kColumnBlock];
        for (std::int64_t i = 0; i < count; ++i) {
          const S* row = source + i * width + begin;
          A* to = target + id[i] * width + begin;
          if constexpr (std::is_same_v<S, A>) {
            add(to, row, to, end - begin);
          } else {
            convert_block(kernels_, row, wide, end - begin);
            add(to, wide, to, end - begin);
          }
        }
      });
    });
  }

  std::size_t scatter_scratch(std::int64_t, std::int64_t) const override { return 0; }

 private:
  Kernels kernels_;
};

}  // namespace

void check_indices(const std::int32_t* indices, std::int64_t count, std::int32_t lowest, std::int64_t bound,
                   const char* where, const char* name) {
  const std::int64_t at = kernels::first_bad_index(indices, count, lowest, bound);
  if (at >= 0) device_arguments::refuse_index(where, name, at, indices[at], lowest, bound);
}

std::unique_ptr<EmbeddingOps> make_embedding_ops(const Kernels& kernels) {
  return std::make_unique<CpuEmbeddingOps>(kernels);
}

}  // namespace tenon::cpu
