// Gather and scatter of rows (family EmbeddingOps). Scatter shares columns among threads, never rows:
// frequent ids would leave one thread with most of the work, and every sum keeps the order of the ids.
#include "common.hpp"
#include "device_common/embeddings.hpp"

#include <cstring>

namespace tenon::cpu {
namespace {

using kernels::Arith;
using kernels::Bf16;

class CpuEmbeddingOps final : public EmbeddingOps {
 public:
  explicit CpuEmbeddingOps(const Kernels& kernels) : kernels_(kernels) {}

  void gather(TensorView table, TensorView ids, TensorView out, bool accumulate) override {
    const device_arguments::RowIds of(table, ids, "gather");
    check_indices(of.id, of.count, 0, of.rows, "gather", "ids");
    with_storage(out.dtype, "gather", [&](auto tag) {
      using S = typename decltype(tag)::type;
      const auto* source = of.in_table<Arith<S>>(table, "table");
      S* target = of.in_order<S>(out, "out");
      parallel_for(of.count, row_block(of.width), [&](std::int64_t begin, std::int64_t end) {
        const std::int64_t width = of.width;
        for (std::int64_t i = begin; i < end; ++i) {
          const auto* row = source + of.id[i] * width;
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
    const device_arguments::RowIds of(gradient, ids, "scatter_add");
    check_indices(of.id, of.count, 0, of.rows, "scatter_add", "ids");
    with_storage(dy.dtype, "scatter_add", [&](auto tag) {
      using S = typename decltype(tag)::type;
      using A = Arith<S>;
      const S* source = of.in_order<S>(dy, "dy");
      A* target = of.in_table<A>(gradient, "gradient");
      parallel_for(of.width, kColumnBlock, [&](std::int64_t begin, std::int64_t end) {
        const std::int64_t width = of.width;
        const auto add = kernels_.ops<A>().elementwise.add;
        A wide[kColumnBlock];
        for (std::int64_t i = 0; i < of.count; ++i) {
          const S* row = source + i * width + begin;
          A* to = target + of.id[i] * width + begin;
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
