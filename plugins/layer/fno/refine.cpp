// Layer `refine`: one dimension after the other, in float32 or float64.
#include "refine.hpp"

#include <tenon/parallel.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tenon::fno {

Refine::Refine(const Options& options)
    : factor_(options.integer("factor")),
      behind_(options.text("behind") == "last"   ? Behind::kLast
              : options.text("behind") == "zero" ? Behind::kZero
                                                 : Behind::kFirst) {}

void Refine::infer(InferContext& context) {
  expect_inputs(context, 1);
  Layout layout = expect_field(context, 0);
  for (const DimSharding& cut : layout.sharding) {
    if (cut.dim >= 2)
      refuse(context, fmt::format("the points of input 0 are cut ({}), and points between two parts have "
                                  "neighbours in both; put a repartition before it that joins them",
                                  layout_text(layout)));
  }
  const Shape x = context.input(0).shape;
  coarse_ = fine_ = x.elements();
  stages_.clear();
  for (int dim = x.rank() - 1; dim >= 2; --dim) {
    Stage stage{1, x[dim], 1};
    for (int d = 0; d < dim; ++d) stage.outer *= x[d];
    for (int d = dim + 1; d < x.rank(); ++d) stage.inner *= x[d] * factor_;
    stages_.push_back(stage);
    layout.shape[dim] *= factor_;
    fine_ *= factor_;
  }
  dtype_ = statistics(context.activations());
  device_ = &context.device();
  elementwise_ = &device_->family<Elementwise>();
  values_ = context.workspace(tensor_bytes(dtype_, fine_));
  other_ = context.workspace(tensor_bytes(dtype_, fine_));
  narrow_ = context.workspace(tensor_bytes(context.activations(), coarse_));
  context.output(placed(context, layout));
}

template <typename T>
void Refine::interpolate(const Stage& stage, const T* coarse, T* fine) const {
  const std::int64_t n = stage.from, inner = stage.inner;
  parallel_for(stage.outer * n, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t line = begin; line < end; ++line) {
      const T* here = coarse + line * inner;
      const bool last = line % n == n - 1;
      const T* next = !last ? here + inner : behind_ == Behind::kFirst ? here - (n - 1) * inner : here;
      for (std::int64_t k = 0; k < factor_; ++k) {
        const T share = static_cast<T>(k) / static_cast<T>(factor_);
        const T to_next = last && behind_ == Behind::kZero ? T(0) : share;
        T* out = fine + (line * factor_ + k) * inner;
        for (std::int64_t i = 0; i < inner; ++i) out[i] = (1 - share) * here[i] + to_next * next[i];
      }
    }
  });
}

template <typename T>
void Refine::gather(const Stage& stage, const T* fine, T* coarse) const {
  const std::int64_t n = stage.from, inner = stage.inner;
  parallel_for(stage.outer * n, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t line = begin; line < end; ++line) {
      const std::int64_t point = line % n;
      const bool last = point == n - 1, first = point == 0;
      // Interpolated from this point and the next, and from the one before and this.
      const T* behind = fine + line * factor_ * inner;
      const T* before = !first                      ? behind - factor_ * inner
                        : behind_ == Behind::kFirst ? behind + (n - 1) * factor_ * inner
                                                    : nullptr;
      T* out = coarse + line * inner;
      std::fill_n(out, inner, T(0));
      for (std::int64_t k = 0; k < factor_; ++k) {
        const T share = static_cast<T>(k) / static_cast<T>(factor_);
        const T own = last && behind_ == Behind::kLast ? T(1) : 1 - share;
        for (std::int64_t i = 0; i < inner; ++i) {
          out[i] += own * behind[k * inner + i];
          if (before != nullptr) out[i] += share * before[k * inner + i];
        }
      }
    }
  });
}

void Refine::run(TensorView values, TensorView other, bool forward) {
  void *from = values_on_host_.read(*device_, values).data, *to = other_on_host_.room(other).data;
  const auto step = [&](const Stage& stage, auto type) {
    using T = decltype(type);
    if (forward) {
      interpolate(stage, static_cast<const T*>(from), static_cast<T*>(to));
    } else {
      gather(stage, static_cast<const T*>(from), static_cast<T*>(to));
    }
    std::swap(from, to);
  };
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    const Stage& stage = stages_[forward ? i : stages_.size() - 1 - i];
    if (dtype_ == DType::kF64) {
      step(stage, double());
    } else {
      step(stage, float());
    }
  }
  stages_.size() % 2 == 0 ? values_on_host_.write(*device_, values) : other_on_host_.write(*device_, other);
}

void Refine::forward(ForwardContext& context) {
  if (fine_ == 0) return;
  const TensorView rooms[2] = {in_workspace(context.workspace(values_), dtype_, {fine_}),
                               in_workspace(context.workspace(other_), dtype_, {fine_})};
  elementwise_->convert(flat(context.input(0)), rooms[0].rows(0, coarse_));
  run(rooms[0], rooms[1], true);
  elementwise_->convert(rooms[stages_.size() % 2], flat(context.output(0)));
}

void Refine::backward(BackwardContext& context) {
  const GradientSink sink = context.input_gradient(0);
  if (sink.view.empty()) return;
  const TensorView rooms[2] = {in_workspace(context.workspace(values_), dtype_, {fine_}),
                               in_workspace(context.workspace(other_), dtype_, {fine_})};
  elementwise_->convert(flat(context.output_gradient(0)), rooms[0]);
  run(rooms[0], rooms[1], false);
  const TensorView gradient = rooms[stages_.size() % 2].rows(0, coarse_), into = flat(sink.view);
  if (!sink.accumulate) {
    elementwise_->convert(gradient, into);
    return;
  }
  const TensorView narrow = in_workspace(context.workspace(narrow_), sink.view.dtype, {coarse_});
  elementwise_->convert(gradient, narrow);
  elementwise_->axpy(1, narrow, into);
}

}  // namespace tenon::fno
