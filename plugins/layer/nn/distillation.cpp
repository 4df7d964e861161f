// Layer `distillation`. Both gradients of a chunk meet before the products of backward: that of the
// divergence replaces the teacher's logits, that of the cross-entropy the student's.
#include "distillation.hpp"

#include <fmt/format.h>

namespace tenon::nn {

Distillation::Distillation(const Options& options) : Loss(options), options_(options) {
  spec_.form = options.choice("form", kForms);
  spec_.temperature = options.real("temperature");
  factor_ = options.boolean("scale_by_square") ? spec_.temperature * spec_.temperature : 1;
  const bool needs = spec_.form == Divergence::kTopK;
  if (needs != options.has("top_k")) {
    fail_config(fmt::format("layer distillation: option 'form' is \"{}\", {}", options.text("form"),
                            needs ? "which needs 'top_k', the number of classes"
                                  : "which has no 'top_k'; remove it, or set form = \"top_k\""));
  }
  if (needs) spec_.top_k = options.integer("top_k");
}

void Distillation::infer(InferContext& context) {
  const Layout counted = expect_targets(context, "x_student");
  head_.infer(context, options_, counted, false);
  device_ = &context.device();
  nn_ = &device_->family<NeuralOps>();
  elementwise_ = &device_->family<Elementwise>();
  divergence_ = &device_->family<DivergenceOps>();
  infer_teacher(context);
  statistics_ = context.saved({{head_.rows(), kDivergenceStatistics}, head_.type()});
  losses_ = context.workspace(window_bytes(head_.type(), head_.rows()));
  token_losses_ = context.workspace(window_bytes(head_.type(), head_.rows()));
  divergence_sum_.infer(context, counted, head_.rows());
  token_sum_.infer(context, counted, head_.rows());
}

void Distillation::infer_teacher(InferContext& context) {
  vocabulary_ = options_.integer("vocabulary");
  const Layout student = context.input(0).layout, teacher = context.input(2).layout;
  Layout wanted = student;
  wanted.shape = with_columns(student.shape, columns_of(teacher.shape));
  if (!(wanted == teacher)) {
    refuse(context, fmt::format("the teacher's rows must be those of the student, with any width, found {}, "
                                "and of the student {}",
                                layout_text(teacher), layout_text(student)));
  }
  const std::int64_t width = columns_of(teacher.shape);
  const Shape head = context.input(3).shape;
  if (head.rank() != 2 || head[1] != width) {
    refuse(context,
           fmt::format("expected the teacher's head [{}, {}], found {}", vocabulary_, width, head.text()));
  }
  if (head[0] != vocabulary_) {
    refuse(context, fmt::format("the teacher's head has {} classes and the student's {}; a student learns "
                                "from a teacher of its own vocabulary",
                                head[0], vocabulary_));
  }
  const std::int64_t rows = head_.rows(), chunk = head_.chunk(), rest = chunk > 0 ? rows % chunk : 0;
  const auto prepared = [&](std::int64_t count) -> std::unique_ptr<Gemm> {
    if (count == 0) return nullptr;
    const DType activations = context.activations();
    return device_->family<Blas>().gemm({.m = count,
                                         .n = vocabulary_,
                                         .k = width,
                                         .transpose_b = true,
                                         .a = activations,
                                         .b = activations,
                                         .c = head_.type()});
  };
  product_ = prepared(chunk), last_product_ = prepared(rest);
  std::size_t scratch = 0;
  for (const Gemm* gemm : {product_.get(), last_product_.get()})
    if (gemm != nullptr) scratch = std::max(scratch, gemm->scratch_bytes());
  scratch_ = context.workspace(scratch);
  if (head_.keeps_logits()) {
    teacher_logits_ = context.saved({{rows, vocabulary_}, head_.type()});
  } else {
    chunk_logits_ = context.workspace(window_bytes(head_.type(), chunk * vocabulary_));
    if (!context.training()) return;
    context.keep_input(2);
    context.keep_input(3);
  }
}

TensorView Distillation::teacher_memory(RunContext& context, std::int64_t rows) const {
  if (head_.keeps_logits()) return context.saved(teacher_logits_);
  return window(context.workspace(chunk_logits_), 0, head_.type(), {rows, vocabulary_});
}

void Distillation::compute_teacher(RunContext& context, std::int64_t begin, std::int64_t end,
                                   const TensorView& logits) {
  Gemm& product = end - begin == head_.chunk() ? *product_ : *last_product_;
  product.run(matrix(context.input(2)).rows(begin, end), context.input(3), logits, {}, 1,
              context.workspace(scratch_));
}

TensorView Distillation::row_window(RunContext& context, WorkspaceRef memory) const {
  return window(context.workspace(memory), 0, head_.type(), {head_.rows()});
}

void Distillation::forward(ForwardContext& context) {
  const TensorView targets = flat(context.input(1)), lse = context.saved(head_.lse()),
                   statistics = context.saved(statistics_), losses = row_window(context, losses_),
                   token_losses = row_window(context, token_losses_);
  head_.each_chunk(context, [&](std::int64_t begin, std::int64_t end, const TensorView& student) {
    const TensorView teacher = teacher_memory(context, end - begin), wanted = targets.rows(begin, end);
    compute_teacher(context, begin, end, teacher);
    divergence_->divergence(spec_, student, teacher, wanted, losses.rows(begin, end),
                            statistics.rows(begin, end));
    nn_->softmax_cross_entropy(student, wanted, 0, token_losses.rows(begin, end), lse.rows(begin, end));
  });
  if (factor_ != 1 && head_.rows() > 0) elementwise_->scale(losses, factor_);
  divergence_sum_.write(losses, targets, context.output(0));
  token_sum_.write(token_losses, targets, context.output(1));
}

void Distillation::backward(BackwardContext& context) {
  const TensorView targets = flat(context.input(1)), lse = context.saved(head_.lse()),
                   statistics = context.saved(statistics_), given = context.output_gradient(1);
  double token_seed[2] = {0, 0};
  if (!given.empty()) {
    device_->copy(given, {token_seed, {2}, DType::kF64, MemorySpace::kHost});
    device_->synchronize();
  }
  head_.each_gradient(context, [&](std::int64_t begin, std::int64_t end, const TensorView& student,
                                   const TensorView& gradient) {
    const TensorView teacher = teacher_memory(context, end - begin), wanted = targets.rows(begin, end);
    if (!head_.keeps_logits()) compute_teacher(context, begin, end, teacher);
    const bool tokens = token_seed[0] != 0;
    divergence_->divergence_backward(spec_, student, teacher, wanted, statistics.rows(begin, end),
                                     seed() * factor_, tokens ? teacher : student);
    if (tokens) {
      nn_->softmax_cross_entropy_backward(student, wanted, 0, lse.rows(begin, end), token_seed[0], student);
      elementwise_->axpy(1, flat(teacher), flat(student));
    }
    if (gradient.data != student.data) elementwise_->convert(student, gradient);
  });
  for (int input = 2; input < 4; ++input) {
    const GradientSink sink = context.input_gradient(input);
    if (!sink.view.empty() && !sink.accumulate) elementwise_->fill(flat(sink.view), 0);
  }
}

}  // namespace tenon::nn
