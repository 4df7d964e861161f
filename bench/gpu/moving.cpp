// Cases of gpu_families bound by memory: quantizers, updates of arenas, and operators between products.
#include "../quantize_cases.hpp"
#include "families.hpp"

#include <tenon/ops/copy.hpp>
#include <tenon/ops/norm.hpp>
#include <tenon/ops/reduce.hpp>
#include <tenon/sdk/ops/mor.hpp>
#include <tenon/sdk/ops/signs.hpp>
#include <tenon/sdk/update_rule.hpp>
#include <tenon/sdk/update_rules.hpp>

namespace tenon::bench::gpu {
namespace {

/// Aims of NVIDIA's formats as shares of the copies' rate; 0 for the others.
double quantizer_aim(std::string_view name) {
  if (name == "nvfp4 1x16") return 0.6;
  if (name == "nvfp4 16x1 rotated stochastic") return 0.4;
  return 0;
}

std::function<Call(Device&)> quantizer(std::int64_t n, const QuantizeCase& c, bool measured) {
  return [=](Device& device) -> Call {
    const auto x = filled(device, {n, n}, DType::kBF16);
    const auto call = std::make_shared<QuantizeCall>(device, c, x->view());
    // x is captured so that it lives as long as the call.
    if (measured) return [call, x] { call->measured(); };
    return [call, x] { (*call)(); };
  };
}

std::function<Call(Device&)> mixture(std::int64_t n, MorMode mode) {
  return [=](Device& device) -> Call {
    MorSpec spec;
    spec.rows = spec.columns = n;
    spec.mode = mode;
    const std::shared_ptr<MorKernel> kernel = device.family<MorOps>().prepare(spec);
    const auto x = filled(device, {n, n}, DType::kBF16), values = filled(device, {n, n}, DType::kBF16),
               choices = filled(device, {kernel->blocks()}, DType::kU8),
               scratch = filled(device, {static_cast<std::int64_t>(kernel->scratch_bytes())}, DType::kU8);
    return [=] { kernel->run(x->view(), values->view(), choices->view(), scratch->view()); };
  };
}

/// x [outer, lines, inner] and twice as many lines, every other one between its neighbours.
std::function<Call(Device&)> interpolation(std::int64_t outer, std::int64_t lines, std::int64_t inner,
                                           bool adjoint) {
  return [=](Device& device) -> Call {
    SparseAxisSpec table;
    table.columns = lines;
    for (std::int64_t line = 0; line < lines; ++line) {
      table.add_row({{line, 1}});
      table.add_row({{line, 0.5}, {std::min(line + 1, lines - 1), 0.5}});
    }
    const std::shared_ptr<SparseAxisOp> sum = device.family<SparseAxisOps>().prepare(table);
    const auto x = filled(device, {outer, lines, inner}, DType::kF32),
               y = filled(device, {outer, 2 * lines, inner}, DType::kF32);
    if (adjoint) return [=] { sum->adjoint(y->view(), x->view(), outer, inner); };
    return [=] { sum->forward(x->view(), y->view(), outer, inner); };
  };
}

}  // namespace

void add_quantizers(const Sizes& sizes, std::vector<FamilyCase>& cases) {
  // Counts bytes as copies of the matrix do, whatever codes and scales take.
  const double bytes = 4.0 * static_cast<double>(sizes.matrix) * static_cast<double>(sizes.matrix);
  const auto add = [&](const std::string& name, double aim, std::function<Call(Device&)> make) {
    cases.push_back(
        {.name = name, .limit = Limit::kCopy, .work = bytes, .aim = aim, .make = std::move(make)});
  };
  for (const QuantizeCase& c : quantize_cases())
    add(fmt::format("quantize {}", c.name), quantizer_aim(c.name), quantizer(sizes.matrix, c, false));
  add("quantize nvfp4 1x16, measured", 0, quantizer(sizes.matrix, quantize_cases().front(), true));
  add("mixture of formats, per tensor", 0, mixture(sizes.matrix, MorMode::kTensor));
  add("mixture of formats, per block by error", 0, mixture(sizes.matrix, MorMode::kQuantError));
  add("mixture of formats, per block by range", 0, mixture(sizes.matrix, MorMode::kDynamicRange));
}

void add_updates(const Sizes& sizes, std::vector<FamilyCase>& cases) {
  const std::int64_t n = sizes.arena;
  const auto add = [&](const char* name, int passes, std::function<Call(Device&)> make) {
    cases.push_back({.name = name,
                     .limit = Limit::kCopy,
                     .work = 4.0 * passes * static_cast<double>(n),
                     .make = std::move(make)});
  };
  add("AdamW", 7, [=](Device& device) -> Call {
    const auto w = filled(device, {n}, DType::kF32), g = filled(device, {n}, DType::kF32),
               m = filled(device, {n}, DType::kF32);
    const auto v = std::make_shared<DeviceMemory>(device, Shape{n}, DType::kF32);  // no square is negative
    const RuleEvaluator evaluate(&device.family<FormulaOps>());
    return [=] {
      evaluate(AdamWRule({.lr = 1e-4, .decay = 0.1}), std::array{w->view(), g->view(), m->view(), v->view()});
    };
  });
  add("SGD", 3, [=](Device& device) -> Call {
    const auto w = filled(device, {n}, DType::kF32), g = filled(device, {n}, DType::kF32);
    const RuleEvaluator evaluate(&device.family<FormulaOps>());
    return [=] { evaluate(SgdRule<false>({.lr = 1e-4}), std::array{w->view(), g->view()}); };
  });
  add("SGD with momentum", 5, [=](Device& device) -> Call {
    const auto w = filled(device, {n}, DType::kF32), g = filled(device, {n}, DType::kF32),
               b = filled(device, {n}, DType::kF32);
    const RuleEvaluator evaluate(&device.family<FormulaOps>());
    return [=] {
      evaluate(SgdRule<true>({.lr = 1e-4, .momentum = 0.9}), std::array{w->view(), g->view(), b->view()});
    };
  });
  add("sum of squares", 1, [=](Device& device) -> Call {
    const auto x = filled(device, {n}, DType::kF32);
    const auto ops = &device.family<ReduceOps>();
    return [=] { ops->sum_of_squares(x->view()); };
  });
}

void add_signs(const Sizes& sizes, std::vector<FamilyCase>& cases) {
  constexpr std::int64_t kMembers = 8;
  constexpr SignPlace kPlace{.scale = 0, .bits = 4};
  const std::int64_t n = sizes.arena, row = 4 + (n + 7) / 8;
  cases.push_back({.name = "signs, encoded",
                   .limit = Limit::kCopy,
                   .work = static_cast<double>(8 * n + row),
                   .make = [=](Device& device) -> Call {
                     const auto ops = &device.family<SignOps>();
                     const auto bytes = static_cast<std::int64_t>(ops->encode_scratch(n));
                     const auto x = filled(device, {n}, DType::kF32), lost = filled(device, {n}, DType::kF32),
                                bits = filled(device, {row}, DType::kU8),
                                scratch = filled(device, {bytes}, DType::kU8);
                     return
                         [=] { ops->encode(x->view(), bits->view(), kPlace, lost->view(), scratch->view()); };
                   }});
  cases.push_back({.name = "signs of 8 members, decoded",
                   .limit = Limit::kCopy,
                   .work = static_cast<double>(4 * n + kMembers * row),
                   .make = [=](Device& device) -> Call {
                     const auto ops = &device.family<SignOps>();
                     const auto rows = filled(device, {kMembers, row}, DType::kU8),
                                mean = filled(device, {n}, DType::kF32);
                     return [=] { ops->decode(rows->view(), kPlace, mean->view()); };
                   }});
}

void add_layers(const Sizes& s, std::vector<FamilyCase>& cases) {
  const auto add = [&](const char* name, double bytes, std::function<Call(Device&)> make) {
    cases.push_back({.name = name, .limit = Limit::kCopy, .work = bytes, .make = std::move(make)});
  };
  const double row = 4.0 * static_cast<double>(s.ids) * static_cast<double>(s.width);
  add("embedding, rows read", 2 * row, [=](Device& device) -> Call {
    const auto table = filled(device, {s.table_rows, s.width}, DType::kF32),
               out = filled(device, {s.ids, s.width}, DType::kF32),
               ids = indices(device, s.ids, s.table_rows);
    const auto ops = &device.family<EmbeddingOps>();
    return [=] { ops->gather(table->view(), ids->view(), out->view(), false); };
  });
  // Every row of the gradient that is named is read and written once, at most one for each id.
  const double sums =
      row + 8.0 * static_cast<double>(std::min(s.ids, s.table_rows)) * static_cast<double>(s.width);
  add("embedding, sums of gradients", sums, [=](Device& device) -> Call {
    const auto table = filled(device, {s.table_rows, s.width}, DType::kF32),
               dy = filled(device, {s.ids, s.width}, DType::kF32), ids = indices(device, s.ids, s.table_rows);
    const auto ops = &device.family<EmbeddingOps>();
    const auto bytes = static_cast<std::int64_t>(ops->scatter_scratch(s.ids, s.table_rows));
    const auto scratch = filled(device, {bytes}, DType::kU8);
    return [=] { ops->scatter_add(dy->view(), ids->view(), table->view(), scratch->view()); };
  });
  const double elements = static_cast<double>(s.norm_rows) * static_cast<double>(s.norm_columns);
  add("sums of rows, bf16", 2 * elements, [=](Device& device) -> Call {
    const auto x = filled(device, {s.norm_rows, s.norm_columns}, DType::kBF16),
               out = filled(device, {s.norm_columns}, DType::kF32);
    const auto ops = &device.family<ReduceOps>();
    const auto bytes =
        static_cast<std::int64_t>(ops->sum_rows_scratch(s.norm_rows, s.norm_columns, DType::kBF16));
    const auto scratch = filled(device, {bytes}, DType::kU8);
    return [=] { ops->sum_rows(x->view(), out->view(), false, scratch->view()); };
  });
  for (const bool backward : {false, true}) {
    add(backward ? "layer norm bf16, backward" : "layer norm bf16", (backward ? 6 : 4) * elements,
        [=](Device& device) -> Call {
          const Shape shape{s.norm_rows, s.norm_columns}, columns{s.norm_columns}, rows{s.norm_rows};
          const auto x = filled(device, shape, DType::kBF16), y = filled(device, shape, DType::kBF16),
                     dx = filled(device, backward ? shape : Shape{1}, DType::kBF16),
                     gain = filled(device, columns, DType::kF32), bias = filled(device, columns, DType::kF32),
                     dgain = filled(device, columns, DType::kF32),
                     dbias = filled(device, columns, DType::kF32), mean = filled(device, rows, DType::kF32),
                     rstd = filled(device, rows, DType::kF32);
          const auto ops = &device.family<NeuralOps>();
          const auto bytes =
              static_cast<std::int64_t>(ops->layer_norm_scratch(s.norm_rows, s.norm_columns, DType::kBF16));
          const auto scratch = filled(device, {bytes}, DType::kU8);
          const Call forward = [=] {
            ops->layer_norm(x->view(), gain->view(), bias->view(), 1e-5, y->view(), mean->view(),
                            rstd->view());
          };
          if (!backward) return forward;
          forward();
          return [=] {
            ops->layer_norm_backward(x->view(), gain->view(), mean->view(), rstd->view(), y->view(),
                                     dx->view(), false, dgain->view(), dbias->view(), false, scratch->view());
          };
        });
  }
  const double logits = 2.0 * static_cast<double>(s.logit_rows) * static_cast<double>(s.table_rows);
  for (const bool backward : {false, true}) {
    add(backward ? "softmax cross-entropy bf16, backward" : "softmax cross-entropy bf16",
        (backward ? 2 : 1) * logits, [=](Device& device) -> Call {
          const auto x = filled(device, {s.logit_rows, s.table_rows}, DType::kBF16),
                     dx = filled(device, {backward ? s.logit_rows : 1, s.table_rows}, DType::kBF16),
                     targets = indices(device, s.logit_rows, s.table_rows),
                     loss = filled(device, {s.logit_rows}, DType::kF32),
                     lse = filled(device, {s.logit_rows}, DType::kF32);
          const auto ops = &device.family<NeuralOps>();
          const Call forward = [=] {
            ops->softmax_cross_entropy(x->view(), targets->view(), 0, loss->view(), lse->view());
          };
          if (!backward) return forward;
          forward();
          return [=] {
            ops->softmax_cross_entropy_backward(x->view(), targets->view(), 0, lse->view(), 1, dx->view());
          };
        });
  }
  for (const bool adjoint : {false, true}) {
    add(adjoint ? "interpolation of rows, adjoint" : "interpolation of rows", 12 * elements,
        interpolation(1, s.norm_rows, s.norm_columns, adjoint));
    add(adjoint ? "interpolation along rows, adjoint" : "interpolation along rows", 12 * elements,
        interpolation(s.norm_rows, s.norm_columns, 1, adjoint));
  }
}

}  // namespace tenon::bench::gpu
