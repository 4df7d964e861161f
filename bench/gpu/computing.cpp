// Cases of gpu_families that computing bounds: products, attention and convolutions.
#include "families.hpp"

#include <tenon/ops/attention.hpp>
#include <tenon/ops/convolution.hpp>

namespace tenon::bench::gpu {
namespace {

std::shared_ptr<DeviceMemory> scratch_of(Device& device, std::size_t bytes) {
  return std::make_shared<DeviceMemory>(device, Shape{static_cast<std::int64_t>(bytes)}, DType::kU8);
}

struct AttentionMemory {
  std::unique_ptr<AttentionKernel> kernel;
  std::shared_ptr<DeviceMemory> q, k, v, y, dy, dq, dk, dv, lse, scratch;

  AttentionMemory(Device& device, const AttentionSpec& spec)
      : kernel(device.family<Attention>().prepare(spec)) {
    const Shape shape{spec.batch, spec.time, spec.heads * spec.head_width};
    for (auto* memory : {&q, &k, &v, &y, &dy, &dq, &dk, &dv}) *memory = filled(device, shape, spec.dtype);
    lse = filled(device, {spec.batch, spec.heads, spec.time}, DType::kF32);
    scratch = scratch_of(device, kernel->scratch_bytes());
  }
  void forward() {
    kernel->forward(q->view(), k->view(), v->view(), {}, y->view(), lse->view(), scratch->view());
  }
  void backward() {
    kernel->backward(q->view(), k->view(), v->view(), {}, y->view(), lse->view(), dy->view(), dq->view(),
                     dk->view(), dv->view(), scratch->view());
  }
};

/// Convolutions from images, with the device's own family.
struct ConvolutionMemory {
  std::unique_ptr<Convolution> convolution;
  std::shared_ptr<DeviceMemory> x, w, y, scratch;

  ConvolutionMemory(Device& device, const ConvolutionSpec& spec) {
    auto* const family = static_cast<Convolutions*>(device.query(Convolutions::kId));
    if (family != nullptr) convolution = family->prepare(spec);
    if (convolution == nullptr) fail_config("this device makes windows");
    x = filled(device, {spec.batch, spec.channels, spec.window.elements()}, spec.dtype);
    w = filled(device, {spec.features, spec.channels * spec.window.offsets()}, spec.dtype);
    y = filled(device, {spec.batch, spec.features, spec.window.places()}, spec.dtype);
    scratch = scratch_of(device, convolution->scratch_bytes());
  }
};

/// Windows, their product, and its rows as planes: the way of layers without that family.
struct WindowMemory {
  WindowOps& ops;
  WindowSpec window, point;
  std::unique_ptr<Gemm> gemm;
  std::shared_ptr<DeviceMemory> x, w, y, columns, rows, scratch;

  WindowMemory(Device& device, const ConvolutionSpec& spec)
      : ops(device.family<WindowOps>()), window(spec.window) {
    const std::int64_t places = spec.batch * window.places(), depth = spec.channels * window.offsets();
    point.spatial = 1, point.extent[0] = window.places();
    gemm = device.family<Blas>().gemm({.m = places, .n = spec.features, .k = depth, .transpose_b = true});
    x = filled(device, {spec.batch, spec.channels, window.elements()}, DType::kF32);
    w = filled(device, {spec.features, depth}, DType::kF32);
    y = filled(device, {spec.batch, spec.features, window.places()}, DType::kF32);
    columns = filled(device, {places, depth}, DType::kF32);
    rows = filled(device, {places, spec.features}, DType::kF32);
    scratch = scratch_of(device, gemm->scratch_bytes());
  }
  void forward() {
    ops.unfold(window, x->view(), 0, columns->view());
    gemm->run(columns->view(), w->view(), rows->view(), {}, 1, scratch->view());
    ops.fold(point, rows->view(), 0, y->view(), false);
  }
};

}  // namespace

GemmSpec product_spec(std::int64_t n, DType operands, DType result) {
  GemmSpec spec;
  spec.m = spec.n = spec.k = n;
  spec.transpose_b = true;  // like the products of linear layers forward
  spec.a = spec.b = operands;
  spec.c = result;
  return spec;
}

Call product_call(Device& device, const GemmSpec& spec) {
  const std::shared_ptr<Gemm> gemm = device.family<Blas>().gemm(spec);
  const auto a = filled(device, {spec.m, spec.k}, spec.a), b = filled(device, {spec.n, spec.k}, spec.b),
             c = filled(device, {spec.m, spec.n}, spec.c), bias = filled(device, {spec.n}, DType::kF32),
             scratch = scratch_of(device, gemm->scratch_bytes());
  return [=] {
    gemm->run(a->view(), b->view(), c->view(), spec.bias ? bias->view() : TensorView{}, 1.0f,
              scratch->view());
  };
}

void add_products(const Sizes& sizes, std::vector<FamilyCase>& cases) {
  const auto add = [&](const char* name, const GemmSpec& spec, Limit limit, bool optional) {
    cases.push_back({.name = name,
                     .limit = limit,
                     .work = 2.0 * static_cast<double>(spec.m * spec.n * spec.k),
                     .flops = true,
                     .make = [=](Device& device) { return product_call(device, spec); },
                     .optional = optional});
  };
  using D = DType;
  add("product f32", product_spec(sizes.product, D::kF32, D::kF32), Limit::kNone, false);
  add("product bf16", product_spec(sizes.product, D::kBF16, D::kBF16), Limit::kNone, false);
  add("product bf16 into f32", product_spec(sizes.product, D::kBF16, D::kF32), Limit::kProduct, false);
  // Rows of the operands, or of the result, that do not begin at multiples of 16 bytes: a vocabulary of
  // 50257.
  GemmSpec odd = product_spec(sizes.product, D::kBF16, D::kBF16);
  odd.n += 1;
  add("product bf16, odd columns", odd, Limit::kProduct, false);
  odd = product_spec(sizes.product, D::kBF16, D::kBF16);
  odd.k += 1;
  add("product bf16, odd depth", odd, Limit::kProduct, false);
  // Products with an epilogue reach bf16 through sums in f32.
  GemmSpec tail = product_spec(sizes.product, D::kBF16, D::kBF16);
  tail.bias = true;
  tail.epilogue = Epilogue::kGeluTanh;
  add("product bf16, bias and GELU", tail, Limit::kProduct, false);
  GemmSpec added = product_spec(sizes.product, D::kBF16, D::kBF16);
  added.accumulate = true;
  add("product bf16, added to bf16", added, Limit::kProduct, false);
  add("product f16", product_spec(sizes.product, D::kF16, D::kF16), Limit::kProduct, true);
  add("product fp8 e4m3 into bf16", product_spec(sizes.product, D::kF8E4M3, D::kBF16), Limit::kProduct, true);
}

void add_attention(const Sizes& sizes, std::vector<FamilyCase>& cases) {
  for (const bool local : {false, true}) {
    AttentionSpec spec;
    spec.batch = sizes.batch, spec.time = sizes.time, spec.heads = sizes.heads;
    spec.head_width = sizes.head_width;
    spec.window = local ? sizes.window : 0;
    spec.dtype = DType::kBF16;
    // Pairs of query and key; two products forward, five backward, which computes the logits again.
    const double time = static_cast<double>(spec.time), window = static_cast<double>(spec.window);
    const double pairs = local ? window * (time - (window - 1) / 2) : time * (time + 1) / 2;
    const double one = 2 * pairs * static_cast<double>(spec.batch * spec.heads * spec.head_width);
    const std::string name = local ? "attention bf16, window, " : "attention bf16, ";
    cases.push_back({.name = name + "forward",
                     .limit = Limit::kProduct,
                     .work = 2 * one,
                     .flops = true,
                     .make = [=](Device& device) -> Call {
                       const auto memory = std::make_shared<AttentionMemory>(device, spec);
                       return [=] { memory->forward(); };
                     }});
    cases.push_back({.name = name + "backward",
                     .limit = Limit::kProduct,
                     .work = 5 * one,
                     .flops = true,
                     .make = [=](Device& device) -> Call {
                       const auto memory = std::make_shared<AttentionMemory>(device, spec);
                       memory->forward();
                       return [=] { memory->backward(); };
                     }});
  }
}

void add_convolutions(const Sizes& sizes, std::vector<FamilyCase>& cases) {
  ConvolutionSpec spec;
  spec.window = {
      .extent = {sizes.extent, sizes.extent}, .kernel = {3, 3}, .pad_low = {1, 1}, .pad_high = {1, 1}};
  spec.batch = sizes.images, spec.channels = spec.features = sizes.channels;
  const double work = 2 * static_cast<double>(spec.batch * spec.features * spec.window.places()) *
                      static_cast<double>(spec.channels * spec.window.offsets());
  using Pass = void (*)(ConvolutionMemory&);
  const std::pair<const char*, Pass> passes[] = {
      {"convolution f32, forward",
       [](ConvolutionMemory& m) {
         m.convolution->forward(m.x->view(), m.w->view(), {}, m.y->view(), m.scratch->view());
       }},
      {"convolution f32, backward to x",
       [](ConvolutionMemory& m) {
         m.convolution->backward_input(m.w->view(), m.y->view(), m.x->view(), false, m.scratch->view());
       }},
      {"convolution f32, backward to w", [](ConvolutionMemory& m) {
         m.convolution->backward_weight(m.x->view(), m.y->view(), m.w->view(), false, m.scratch->view());
       }}};
  for (const auto& [name, pass] : passes)
    cases.push_back({.name = name,
                     .work = work,
                     .flops = true,
                     .make = [=, run = pass](Device& device) -> Call {
                       const auto memory = std::make_shared<ConvolutionMemory>(device, spec);
                       return [=] { run(*memory); };
                     },
                     .optional = true});
  cases.push_back({.name = "convolution f32 by windows, forward",
                   .work = work,
                   .flops = true,
                   .make = [=](Device& device) -> Call {
                     const auto memory = std::make_shared<WindowMemory>(device, spec);
                     return [=] { memory->forward(); };
                   }});
}

}  // namespace tenon::bench::gpu
