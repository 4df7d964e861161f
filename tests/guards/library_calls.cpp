// Convolutions by oneDNN itself, for guards_test, which runs it with guarded_calls in front.
//   kept                        every pass by every implementation that the device may take
//   left CHANNELS ROWS COLUMNS  the weight gradient of these strides that it leaves; prints "none" without
//   one long                        a product that takes a second or more
#include "convolution.hpp"
#include "onednn_handles.hpp"

#include <array>
#include <cstdlib>
#include <iostream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace tenon::cpu {
namespace {

struct Call {
  std::int64_t channels = 4, features = 8, rows = 1, columns = 1;  // the latter two: strides
  std::int64_t kernel = 1, height = 28, width = 28;

  bool strided() const { return rows > 1 || columns > 1; }
  std::int64_t high() const { return (height - 1) / rows + 1; }
  std::int64_t wide() const { return (width - 1) / columns + 1; }
};

dnnl_memory_desc_t tensor(const dnnl_dims_t& dims, dnnl_format_tag_t tag) {
  dnnl_memory_desc_t desc;
  TENON_ONEDNN(dnnl_memory_desc_init_by_tag(&desc, 4, dims, dnnl_f32, tag));
  return desc;
}

struct Operand {
  int argument;
  dnnl_query_t order;
};
using Operands = std::array<Operand, 3>;
constexpr Operands kForward{Operand{DNNL_ARG_SRC, dnnl_query_src_md},
                            {DNNL_ARG_WEIGHTS, dnnl_query_weights_md},
                            {DNNL_ARG_DST, dnnl_query_dst_md}};
constexpr Operands kInput{Operand{DNNL_ARG_WEIGHTS, dnnl_query_weights_md},
                          {DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md},
                          {DNNL_ARG_DIFF_SRC, dnnl_query_diff_src_md}};
constexpr Operands kWeight{Operand{DNNL_ARG_SRC, dnnl_query_src_md},
                           {DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md},
                           {DNNL_ARG_DIFF_WEIGHTS, dnnl_query_diff_weights_md}};

void execute(const PrimitiveDesc& desc, const Operands& operands, dnnl_engine_t engine) {
  Primitive primitive;
  Stream stream;
  TENON_ONEDNN(dnnl_primitive_create(primitive.out(), desc.get()));
  TENON_ONEDNN(dnnl_stream_create(stream.out(), engine, dnnl_stream_default_flags));
  std::array<std::vector<float>, 4> memory;
  std::array<Memory, 4> handles;
  std::array<dnnl_exec_arg_t, 4> arguments{};
  for (std::size_t i = 0; i < 4; ++i) {
    const bool scratch = i == 3;
    const dnnl_memory_desc_t& order =
        scratch ? scratch_of(desc) : *dnnl_primitive_desc_query_md(desc.get(), operands[i].order, 0);
    const std::size_t bytes = dnnl_memory_desc_get_size(&order);
    memory[i].assign((bytes + kOnednnAlignment) / sizeof(float) + 1, 1.0f);
    make(handles[i], order, engine);
    point(handles[i], aligned(memory[i].data()));
    arguments[i] = {scratch ? DNNL_ARG_SCRATCHPAD : operands[i].argument, handles[i].get()};
  }
  TENON_ONEDNN(dnnl_primitive_execute(primitive.get(), stream.get(), 4, arguments.data()));
  TENON_ONEDNN(dnnl_stream_wait(stream.get()));
}

/// Runs the implementations of all passes that are taken (`left` false), or those that are skipped. Returns
/// how many.
int run(const Call& call, dnnl_format_tag_t order, bool left, dnnl_engine_t engine) {
  const std::int64_t pad = call.kernel / 2;
  const dnnl_dims_t x_dims = {2, call.channels, call.height, call.width},
                    w_dims = {call.features, call.channels, call.kernel, call.kernel},
                    y_dims = {2, call.features, call.high(), call.wide()}, stride = {call.rows, call.columns},
                    none = {0, 0}, low = {pad, pad};
  const dnnl_dims_t high = {(call.high() - 1) * call.rows + call.kernel - call.height - pad,
                            (call.wide() - 1) * call.columns + call.kernel - call.width - pad};
  const dnnl_memory_desc_t x = tensor(x_dims, order), w = tensor(w_dims, dnnl_format_tag_any),
                           y = tensor(y_dims, order);
  constexpr dnnl_alg_kind_t kDirect = dnnl_convolution_direct;
  dnnl_convolution_desc_t forward, input, weight;
  TENON_ONEDNN(dnnl_dilated_convolution_forward_desc_init(&forward, dnnl_forward_training, kDirect, &x, &w,
                                                          nullptr, &y, stride, none, low, high));
  TENON_ONEDNN(
      dnnl_dilated_convolution_backward_data_desc_init(&input, kDirect, &x, &w, &y, stride, none, low, high));
  TENON_ONEDNN(dnnl_dilated_convolution_backward_weights_desc_init(&weight, kDirect, &x, &w, nullptr, &y,
                                                                   stride, none, low, high));
  Attributes attributes;
  scratch_of_caller(attributes);
  PrimitiveDesc to_y;
  TENON_ONEDNN(dnnl_primitive_desc_create(to_y.out(), &forward, attributes.get(), engine, nullptr));
  int count = 0;
  for (const auto& [operation, operands, hint] :
       {std::tuple(&forward, &kForward, false), {&input, &kInput, true}, {&weight, &kWeight, true}}) {
    PrimitiveDescs offers;
    dnnl_status_t found = dnnl_primitive_desc_iterator_create(offers.out(), operation, attributes.get(),
                                                              engine, hint ? to_y.get() : nullptr);
    for (; found == dnnl_success; found = dnnl_primitive_desc_iterator_next(offers.get())) {
      PrimitiveDesc desc;
      *desc.out() = dnnl_primitive_desc_iterator_fetch(offers.get());
      const std::string name = implementation_of(desc);
      if (name.find("ref") != std::string::npos || name.find("gemm") != std::string::npos) break;
      const dnnl_memory_desc_t* taken = dnnl_primitive_desc_query_md(desc.get(), operands->front().order, 0);
      const bool overruns =
          operands == &kWeight &&
          overruns_scratch(name, call.channels, call.strided(), taken->format_desc.blocking.inner_nblks == 0);
      if (overruns != left) continue;
      ++count;
      execute(desc, *operands, engine);
    }
  }
  return count;
}

int run_kept(dnnl_engine_t engine) {
  int count = 0;
  const Call shapes[] = {{.height = 12, .width = 12},
                         {.rows = 2, .columns = 2, .height = 12, .width = 12},
                         {.rows = 1, .columns = 3, .height = 12, .width = 12},
                         {.rows = 2, .columns = 2, .height = 7, .width = 9},
                         {.kernel = 3, .height = 7, .width = 9},
                         {.rows = 2, .columns = 2, .kernel = 3, .height = 7, .width = 9}};
  for (Call call : shapes)
    for (call.channels = 1; call.channels <= 20; call.channels += call.channels < 8 ? 1 : 4)
      for (const std::int64_t features : {5, 8})
        for (const dnnl_format_tag_t order : {dnnl_acdb, dnnl_format_tag_any}) {
          call.features = features;
          count += run(call, order, false, engine);
        }
  return count;
}

void run_long(dnnl_engine_t engine) {
  const dnnl_dims_t dims = {6144, 6144}, strides = {6144, 1};
  dnnl_memory_desc_t desc;
  TENON_ONEDNN(dnnl_memory_desc_init_by_strides(&desc, 2, dims, dnnl_f32, strides));
  dnnl_matmul_desc_t matmul;
  TENON_ONEDNN(dnnl_matmul_desc_init(&matmul, &desc, &desc, nullptr, &desc));
  Attributes attributes;
  scratch_of_caller(attributes);
  PrimitiveDesc made;
  TENON_ONEDNN(dnnl_primitive_desc_create(made.out(), &matmul, attributes.get(), engine, nullptr));
  execute(made,
          {Operand{DNNL_ARG_SRC, dnnl_query_src_md},
           {DNNL_ARG_WEIGHTS, dnnl_query_weights_md},
           {DNNL_ARG_DST, dnnl_query_dst_md}},
          engine);
}

int run_all(const std::vector<std::string>& words) {
  Engine engine;
  TENON_ONEDNN(dnnl_engine_create(engine.out(), dnnl_cpu, 0));
  if (words.size() == 1 && words[0] == "kept") {
    std::cout << run_kept(engine.get()) << " calls\n";
  } else if (words.size() == 4 && words[0] == "left") {
    // 28 x 28 results: with AVX-512 the library stays inside its scratch for less than about 600.
    const std::int64_t rows = std::stoll(words[2]), columns = std::stoll(words[3]);
    const Call call{std::stoll(words[1]), 8, rows, columns, 1, 28 * rows, 28 * columns};
    if (run(call, dnnl_acdb, true, engine.get()) == 0) std::cout << "none\n";
  } else if (words.size() == 1 && words[0] == "long") {
    run_long(engine.get());
  } else {
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace tenon::cpu

int main(int count, char** words) {
  return tenon::cpu::run_all({words + 1, words + count});
}
