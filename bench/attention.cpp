// The attention kernel, forward and backward, against itself: 8 equal documents in a row of 1,024 places
// against one document, and fewer heads of k and v against as many as of q. Ends with 1 where the median of
// the documents misses its limit.
#include "product_limit.hpp"

#include <tenon/ops/attention.hpp>
#include <tenon/testing/components.hpp>
#include <tenon/testing/tensors.hpp>

#include <memory>

namespace tenon::bench {
namespace {

constexpr double kDocumentsLimit = 0.5;

class Attending {
 public:
  Attending(Device& device, const AttentionSpec& spec, std::int64_t documents)
      : kernel_(device.family<Attention>().prepare(spec)) {
    const Shape shape{spec.batch, spec.time, spec.heads * spec.head_width},
        key_shape{spec.batch, spec.time, spec.kv_heads * spec.head_width}, row{spec.batch, spec.time};
    const auto filled = [&](const Shape& s, const char* name) {
      const auto memory = std::make_shared<DeviceMemory>(device, s, spec.dtype);
      testing::write(device, memory->view(), testing::normals(s.elements(), name));
      return memory;
    };
    q_ = filled(shape, "q"), k_ = filled(key_shape, "k"), v_ = filled(key_shape, "v"),
    dy_ = filled(shape, "dy");
    const auto empty = [&](const Shape& s, DType dtype) {
      return std::make_shared<DeviceMemory>(device, s, dtype);
    };
    y_ = empty(shape, spec.dtype), dq_ = empty(shape, spec.dtype), dk_ = empty(key_shape, spec.dtype),
    dv_ = empty(key_shape, spec.dtype);
    lse_ = empty({spec.batch, spec.heads, spec.time}, DType::kF32);
    scratch_ = empty({static_cast<std::int64_t>(kernel_->scratch_bytes())}, DType::kU8);
    if (documents == 0) return;
    numbers_ = empty(row, DType::kI32);
    std::vector<double> numbers(row.elements());
    for (std::size_t i = 0; i < numbers.size(); ++i)
      numbers[i] = static_cast<double>(static_cast<std::int64_t>(i) % spec.time * documents / spec.time);
    testing::write(device, numbers_->view(), numbers);
    masks_.documents = numbers_->view();
  }
  void operator()() {
    kernel_->forward(q_->view(), k_->view(), v_->view(), masks_, y_->view(), lse_->view(), scratch_->view());
    kernel_->backward(q_->view(), k_->view(), v_->view(), masks_, y_->view(), lse_->view(), dy_->view(),
                      dq_->view(), dk_->view(), dv_->view(), scratch_->view());
  }

 private:
  using Memory = std::shared_ptr<DeviceMemory>;
  std::unique_ptr<AttentionKernel> kernel_;
  Memory q_, k_, v_, y_, lse_, dy_, dq_, dk_, dv_, scratch_, numbers_;
  AttentionMasks masks_;
};

int measure(const Settings& settings) {
  testing::Bench bench("cpu", "auto", settings.threads);
  Device& device = *bench.device;
  bool met = true;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    AttentionSpec spec{.batch = 2, .time = 1024, .heads = 8, .head_width = 64};
    spec.kv_heads = spec.heads, spec.logit_scale = 0.125, spec.dtype = dtype;
    fmt::print("{}, batch {}, {} places, {} heads of {}, kernels {}, {} thread(s), forward and backward\n",
               dtype_name(dtype), spec.batch, spec.time, spec.heads, spec.head_width, device.kernel_choice(),
               settings.threads);
    const auto with_key_heads = [&](std::int64_t kv_heads) {
      AttentionSpec grouped = spec;
      grouped.kv_heads = kv_heads;
      return grouped;
    };
    struct Row {
      const char* name;
      Attending call;
      double limit;
      std::vector<double> ratios = {};
    };
    Attending plain(device, spec, 0);
    std::vector<Row> rows;
    rows.push_back({"1 document", Attending(device, spec, 1), 0});
    rows.push_back({"8 documents", Attending(device, spec, 8), kDocumentsLimit});
    rows.push_back({"2 heads of k and v", Attending(device, with_key_heads(2), 0), 0});
    rows.push_back({"1 head of k and v", Attending(device, with_key_heads(1), 0), 0});
    std::vector<double> milliseconds;
    const double least = 0.01 * settings.steps;
    for (int round = 0; round < settings.rounds; ++round) {
      const double one = seconds_of_calls(least, [&] { plain(); });
      milliseconds.push_back(1e3 * one);
      for (Row& row : rows) row.ratios.push_back(seconds_of_calls(least, [&] { row.call(); }) / one);
    }
    fmt::print("{:<22} {} ms\n", "no documents", spread(milliseconds));
    for (const Row& row : rows) {
      const bool missed = row.limit > 0 && median(row.ratios) > row.limit;
      fmt::print("{:<22} {} of it{}\n", row.name, spread(row.ratios),
                 row.limit == 0 ? "" : fmt::format(", limit {}{}", row.limit, missed ? ": missed" : ""));
      met = met && !missed;
    }
  }
  return met ? 0 : 1;
}

}  // namespace
}  // namespace tenon::bench

int main(int argc, char** argv) {
  return tenon::bench::run_program("attention", argc, argv, {.rounds = 5, .steps = 20},
                                   tenon::bench::measure);
}
