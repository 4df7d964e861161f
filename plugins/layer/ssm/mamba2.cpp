// Layer `mamba2`: what it declares, and its passes through the operators of the device.
#include "mamba2.hpp"

#include "layer_common/documents.hpp"
#include "layer_common/values.hpp"

#include <algorithm>
#include <cmath>

namespace tenon::ssm {

using layer_common::flat;
using layer_common::free_axes;
using layer_common::matrix;
using layer_common::refuse;
using layer_common::statistics;
using layer_common::window;
using layer_common::window_bytes;

namespace {

ParameterSpec plain(std::initializer_list<std::int64_t> shape, Initializer init, double scale, DType dtype) {
  ParameterSpec spec;
  spec.shape = Shape(shape);
  spec.init = init, spec.init_scale = scale;
  spec.dtype = dtype;
  return spec;
}

ParameterSpec undecayed(ParameterSpec spec) {
  spec.decay = false;
  return spec;
}

/// Dimension `dim`, evenly over `axes` together.
void shard(ParameterSpec& spec, int dim, const std::vector<int>& axes, const Mesh& mesh) {
  if (axes.empty()) return;
  int parts = 1;
  for (const int axis : axes) parts *= mesh.extent(axis);
  spec.sharding.push_back({dim, axes, balanced_offsets(spec.shape[dim], parts)});
}

}  // namespace

void Mamba2::infer(InferContext& context) {
  const Layout x = expect_samples(context);
  const Shape here = context.input(0).shape;
  name_ = context.name();
  batch_ = here[0], time_ = here[1], width_ = here[2];
  sizes_ = {.heads = options_.integer("heads"),
            .head_width = options_.integer("head_width"),
            .groups = options_.integer("groups"),
            .state = options_.integer("state")};
  conv_ = options_.integer("conv"), chunk_ = options_.integer("chunk");
  dtype_ = context.activations(), parameter_ = context.parameters();
  training_ = context.training();
  device_ = &context.device();
  elementwise_ = &device_->family<Elementwise>();
  check_options(context);
  std::string problem;
  share_ = HeadShare(sizes_, context.mesh(), free_axes(context, options_, x), problem);
  if (!problem.empty()) refuse(context, problem);

  // Samples as in x, heads over the axes: ranks along any of them have other terms of a parameter's gradient.
  Layout heads = x;
  heads.shape[2] = sizes_.heads;
  ParameterSpec sharded;
  sharded.shape = heads.shape;
  shard(sharded, 2, share_.axes(), context.mesh());
  heads.sharding.insert(heads.sharding.end(), sharded.sharding.begin(), sharded.sharding.end());

  declare_parameters(context, heads);
  prepare(context);
  declare_memory(context);
  const std::int64_t rows =
      std::max<std::int64_t>(1, batch_ * time_);  // policies count sites without rows, too
  in_site_ = context.linear_site({.weight = in_.ref,
                                  .first_weight_row = share_.first_row(),
                                  .input = 0,
                                  .m = rows,
                                  .n = share_.rows(),
                                  .k = width_});
  out_site_ = context.linear_site({.weight = out_weight_.ref, .m = rows, .n = width_, .k = share_.columns()});
  declare_sums(context, x, heads);
  context.output(placed(context, out_));
}

Layout Mamba2::expect_samples(InferContext& context) {
  const Layout x = context.input(0).layout;
  if (x.shape.rank() != 3) refuse(context, "expected x of [batch, time, width], found " + x.shape.text());
  if (!x.partial.empty()) {
    refuse(context, "x is a sum over ranks (" + layout_text(x) + "); put a repartition before the layer");
  }
  for (int dim = 1; dim < 3; ++dim) {
    if (sharding_of(x, dim) == nullptr) continue;
    refuse(context, fmt::format("x must have whole sequences of whole rows on every rank, found {}; put a "
                                "repartition before the layer that shards dimension 0 alone",
                                layout_text(x)));
  }
  packed_ = context.inputs() > 1;
  if (!packed_) return x;
  const Layout numbers = context.input(1).layout;
  const Shape expected{x.shape[0], x.shape[1]};
  if (!(numbers.shape == expected)) {
    refuse(context, fmt::format("expected documents of {}, a number per position of x {}, found {}",
                                expected.text(), x.shape.text(), numbers.shape.text()));
  }
  if (!(Layout{expected, x.sharding} == numbers)) {
    refuse(context, "the documents must be sharded as the samples of x are, found " + layout_text(x) +
                        ", and " + layout_text(numbers) + "; put a repartition before one");
  }
  context.keep_input(1);
  return x;
}

void Mamba2::check_options(InferContext& context) const {
  if (sizes_.heads % sizes_.groups != 0) {
    refuse(context, fmt::format("option 'heads' is {}; expected a multiple of the {} groups (option "
                                "'groups'), since all groups have as many heads",
                                sizes_.heads, sizes_.groups));
  }
  const double low = std::max(options_.real("dt_min"), options_.real("dt_floor")),
               high = options_.real("dt_max");
  if (!(low > 0 && low <= high)) {
    refuse(context, fmt::format("initial steps would lie between {} (the greater of options 'dt_min' and "
                                "'dt_floor') and {} (option 'dt_max'); expected 0 < least <= greatest",
                                low, high));
  }
  const auto limits = options_.reals("dt_limits");
  if (limits[1] > 0 && limits[0] > limits[1]) {
    refuse(context,
           fmt::format("option 'dt_limits' is [{}, {}]; expected the lower bound first, or 0 for none",
                       limits[0], limits[1]));
  }
}

Mamba2::Held Mamba2::declare(InferContext& context, std::string_view member, ParameterSpec spec,
                             const Layout& heads) {
  spec.name = fmt::format("{}.{}", context.name(), member);
  return {context.parameter(spec), GradientSum(context, spec, heads)};
}

void Mamba2::declare_parameters(InferContext& context, const Layout& heads) {
  const Mesh& mesh = context.mesh();
  const DType exact = statistics(dtype_);
  const double scale = options_.real("init_scale"),
               out_scale = options_.has("out_init_scale") ? options_.real("out_init_scale") : scale;
  const auto by_groups = [&](ParameterSpec spec) {
    shard(spec, 0, share_.group_axes(), mesh);
    return spec;
  };
  const auto by_heads = [&](ParameterSpec spec, int dim) {
    shard(spec, dim, share_.axes(), mesh);
    return spec;
  };
  const auto of_heads = [&](Initializer init, double low, double high) {
    ParameterSpec spec = undecayed(plain({sizes_.heads}, init, high, exact));
    spec.init_low = low;
    return by_heads(spec, 0);
  };
  const std::int64_t channels = sizes_.groups * sizes_.group_channels();
  in_ = declare(context, "in_proj.weight",
                by_groups(plain({sizes_.groups * sizes_.group_rows(), width_}, Initializer::kNormal, scale,
                                parameter_)),
                heads);
  conv_weight_ = declare(context, "conv1d.weight",
                         by_groups(plain({channels, 1, conv_}, Initializer::kUniform,
                                         1 / std::sqrt(static_cast<double>(conv_)), parameter_)),
                         heads);
  conv_bias_ = declare(context, "conv1d.bias",
                       by_groups(undecayed(plain({channels}, Initializer::kZero, 0, parameter_))), heads);
  steps_ =
      declare(context, "dt_bias",
              of_heads(Initializer::kInverseSoftplusLogUniform,
                       std::max(options_.real("dt_min"), options_.real("dt_floor")), options_.real("dt_max")),
              heads);
  decays_ = declare(context, "A_log", of_heads(Initializer::kLogOfUniform, 1, 16), heads);
  skips_ = declare(context, "D", of_heads(Initializer::kOne, 0, 0), heads);
  gains_ = declare(context, "norm.weight",
                   by_heads(undecayed(plain({sizes_.inner()}, Initializer::kOne, 0, parameter_)), 0), heads);
  out_weight_ = declare(
      context, "out_proj.weight",
      by_heads(plain({width_, sizes_.inner()}, Initializer::kNormal, out_scale, parameter_), 1), heads);
}

void Mamba2::prepare(InferContext& context) {
  const auto limits = options_.reals("dt_limits");
  convolution_ = device_->family<CausalConvs>().prepare({.batch = batch_,
                                                         .time = time_,
                                                         .width = conv_,
                                                         .columns = share_.rows(),
                                                         .channels = share_.conv_channels(),
                                                         .dtype = dtype_,
                                                         .parameter = parameter_});
  scan_ = device_->family<Ssd>().prepare({.batch = batch_,
                                          .time = time_,
                                          .heads = share_.heads(),
                                          .head_width = sizes_.head_width,
                                          .groups = share_.groups(),
                                          .state = sizes_.state,
                                          .chunk = chunk_,
                                          .columns = share_.rows(),
                                          .steps = share_.steps(),
                                          .dt_min = limits[0],
                                          .dt_max = limits[1],
                                          .dtype = dtype_});
  if (share_.shared()) {
    shared_norm_.emplace(context, context.input(0).layout, share_, sizes_, options_.real("norm_eps"));
    return;
  }
  norm_ = device_->family<GatedNorms>().prepare({.rows = batch_ * time_,
                                                 .groups = share_.groups(),
                                                 .group_width = sizes_.per_group() * sizes_.head_width,
                                                 .columns = share_.rows(),
                                                 .gates = share_.gates(),
                                                 .eps = options_.real("norm_eps"),
                                                 .dtype = dtype_,
                                                 .parameter = parameter_});
}

void Mamba2::declare_memory(InferContext& context) {
  const std::int64_t rows = batch_ * time_;
  std::size_t bytes = 0;
  const auto take = [&](std::int64_t elements, DType dtype) {
    const std::size_t at = bytes;
    bytes += window_bytes(dtype, elements);
    return at;
  };
  // Kept: the projection, which every later step reads, and what the scan gives, for which backward would
  // run the whole scan once more. The convolution and the norm read each value a few times and are repeated.
  // States stand at the borders of chunks alone.
  if (training_) {
    saved_projected_ = context.saved({{rows, share_.rows()}, dtype_});
    saved_scanned_ = context.saved({{rows, share_.columns()}, dtype_});
    const std::int64_t chunks = (time_ + chunk_ - 1) / chunk_;
    states_ = context.saved(
        {{batch_, chunks, share_.heads(), sizes_.state, sizes_.head_width}, statistics(dtype_)});
    dxbc_at_ = take(rows * share_.channels(), dtype_);
    dprojected_at_ = take(rows * share_.rows(), dtype_);
    dy_at_ = take(rows * share_.columns(), dtype_);
    // Gradients of a frozen parameter, and of filters in the order of this rank's channels.
    spare_at_ = take(std::max(share_.channels() * (conv_ + 1), share_.columns()), parameter_);
  } else {
    projected_at_ = take(rows * share_.rows(), dtype_);
    scanned_at_ = take(rows * share_.columns(), dtype_);
  }
  // The normed values take the place of xbc, which is larger.
  xbc_at_ = take(rows * share_.channels(), dtype_);
  if (share_.shared()) filters_at_ = take(share_.channels() * (conv_ + 1) + 64, parameter_);
  scratch_bytes_ = std::max(convolution_->scratch_bytes(), scan_->scratch_bytes());
  if (norm_ != nullptr) scratch_bytes_ = std::max(scratch_bytes_, norm_->scratch_bytes());
  scratch_at_ = take(static_cast<std::int64_t>(scratch_bytes_), DType::kU8);
  workspace_ = context.workspace(bytes);
}

void Mamba2::declare_sums(InferContext& context, const Layout& x, const Layout& heads) {
  ParameterSpec held;
  held.name = "x";
  held.dtype = dtype_;
  held.shape = x.shape, held.sharding = x.sharding;
  x_sum_ = GradientSum(context, held, heads);
  out_ = x;
  Layout terms = x;
  for (const int axis : share_.axes())
    if (context.mesh().extent(axis) > 1) terms.partial.push_back(axis);
  if (terms.partial.empty()) return;
  out_sum_ = redistribution(context.mesh(), {.from = terms, .to = out_, .dtype = dtype_, .device = device_},
                            fmt::format("layer '{}'", context.name()));
}

TensorView Mamba2::documents(RunContext& context) const {
  return packed_ ? context.input(1) : TensorView{};
}

TensorView Mamba2::room(RunContext& context, std::size_t offset, std::int64_t columns) const {
  return window(context.workspace(workspace_), offset, dtype_, {batch_, time_, columns});
}

TensorView Mamba2::projected(RunContext& context) const {
  if (!training_) return room(context, projected_at_, share_.rows());
  return context.saved(saved_projected_).reshaped({batch_, time_, share_.rows()});
}

TensorView Mamba2::scanned(RunContext& context) const {
  if (!training_) return room(context, scanned_at_, share_.columns());
  return context.saved(saved_scanned_).reshaped({batch_, time_, share_.columns()});
}

TensorView Mamba2::scratch(RunContext& context) const {
  return window(context.workspace(workspace_), scratch_at_, DType::kU8,
                {static_cast<std::int64_t>(scratch_bytes_)});
}

Mamba2::Filters Mamba2::filters(RunContext& context) const {
  const TensorView weight = context.parameter(conv_weight_.ref), bias = context.parameter(conv_bias_.ref);
  if (!share_.shared()) return {weight.reshaped({share_.channels(), conv_}), bias};
  // Rows of this rank's heads, and of B and C of their group.
  const TensorView bytes = context.workspace(workspace_);
  const std::int64_t channels = share_.channels();
  const Filters own{
      window(bytes, filters_at_, parameter_, {channels, conv_}),
      window(bytes, filters_at_ + window_bytes(parameter_, channels * conv_), parameter_, {channels})};
  std::int64_t at = 0;
  for (const ColumnRun& run : share_.kept_channels()) {
    const std::int64_t first = share_.first_channel() + run.first, last = first + run.width;
    device_->copy(flat(weight.rows(first, last)), flat(own.weight.rows(at, at + run.width)));
    device_->copy(bias.rows(first, last), own.bias.rows(at, at + run.width));
    at += run.width;
  }
  return own;
}

SsdInputs Mamba2::inputs(RunContext& context, TensorView xbc) const {
  return {.xbc = xbc,
          .projected = projected(context),
          .a_log = context.parameter(decays_.ref),
          .dt_bias = context.parameter(steps_.ref),
          .d = context.parameter(skips_.ref),
          .documents = documents(context),
          .initial = {}};
}

void Mamba2::check_context(RunContext& context) const {
  // Not in infer(): shapes are asked for with one position, and a pass over kept state may be as short.
  if (!context.training() || time_ >= conv_) return;
  fail_config(
      fmt::format("layer '{}': expected at least as many positions as the convolution reads, {} (option "
                  "'conv'), found x of {}; train on a longer context, or lower the option",
                  name_, conv_, context.input(0).shape.text()));
}

void Mamba2::forward(ForwardContext& context) {
  check_context(context);
  if (batch_ > 0) {
    if (packed_) layer_common::check_documents(name_, *device_, stage_, context.input(1), {});
    const TensorView row = projected(context), xbc = room(context, xbc_at_, share_.channels());
    context.fprop(in_site_, matrix(context.input(0)), {}, matrix(row), 0);
    const Filters own = filters(context);
    convolution_->forward(row, documents(context), own.weight, own.bias, xbc, scratch(context));
    scan_->forward(inputs(context, xbc), scanned(context), training_ ? context.saved(states_) : TensorView{},
                   {}, scratch(context));
  }
  finish(context);
}

void Mamba2::finish(ForwardContext& context) {
  const TensorView y = matrix(scanned(context)), row = matrix(projected(context)),
                   gain = context.parameter(gains_.ref), out = context.output(0);
  const TensorView normed = matrix(room(context, xbc_at_, share_.columns()));
  if (shared_norm_) shared_norm_->forward(context, y, row, gain, normed);
  if (batch_ > 0) {
    if (norm_ != nullptr) norm_->forward(y, row, gain, normed);
    context.fprop(out_site_, normed, {}, matrix(out), 0);
  }
  if (out_sum_ != nullptr) out_sum_->forward(out, out);
}

std::int64_t Mamba2::infer_step(InferContext&, std::int64_t) {
  const auto whole = [](std::int64_t bytes) { return (bytes + 63) / 64 * 64; };
  return whole(convolution_->sequence_bytes()) + whole(scan_->sequence_bytes());
}

void Mamba2::step(ForwardContext& context, const Steps& steps) {
  if (packed_) layer_common::check_documents(name_, *device_, stage_, context.input(1), steps.count);
  const TensorView row = projected(context), xbc = room(context, xbc_at_, share_.channels());
  context.fprop(in_site_, matrix(context.input(0)), {}, matrix(row), 0);
  const CachedRows rows{steps.first, steps.count, steps.kept};
  // An operator's states of all sequences stand together: tails of the convolution first.
  const std::int64_t sequences = steps.state.shape[0], tail = convolution_->sequence_bytes(),
                     state = scan_->sequence_bytes(), tails = sequences * ((tail + 63) / 64 * 64);
  const Filters own = filters(context);
  convolution_->step(row, documents(context), own.weight, own.bias, rows,
                     window(steps.state, 0, DType::kU8, {sequences, tail}), xbc);
  scan_->step(inputs(context, xbc), rows,
              window(steps.state, static_cast<std::size_t>(tails), DType::kU8, {sequences, state}),
              scanned(context), scratch(context));
  finish(context);
}

void Mamba2::backward(BackwardContext& context) {
  const TensorView dxbc = room(context, dxbc_at_, share_.channels()),
                   dprojected = room(context, dprojected_at_, share_.rows());
  // Columns of heads of other ranks have no gradient here.
  if (batch_ > 0 && share_.shared()) elementwise_->fill(flat(dprojected), 0);
  const TensorView dy = out_backward(context, dprojected);
  const TensorView xbc = room(context, xbc_at_, share_.channels());
  if (batch_ > 0) {
    const Filters own = filters(context);
    convolution_->forward(projected(context), documents(context), own.weight, own.bias, xbc,
                          scratch(context));
  }
  parameters_of_heads_backward(context, xbc, dy, dxbc, dprojected);
  convolution_backward(context, dxbc, dprojected);
  in_backward(context, dprojected);
}

TensorView Mamba2::out_backward(BackwardContext& context, TensorView dprojected) {
  const TensorView dout = context.output_gradient(0), dy = matrix(room(context, dy_at_, share_.columns())),
                   normed = matrix(room(context, xbc_at_, share_.columns()));
  const TensorView y = matrix(scanned(context)), row = matrix(projected(context)),
                   gain = context.parameter(gains_.ref);
  const GradientSink weight = context.gradient(out_weight_.ref), dgain = context.gradient(gains_.ref);
  if (batch_ > 0) {
    if (norm_ != nullptr) norm_->forward(y, row, gain, normed);
    if (shared_norm_) shared_norm_->repeat(context, y, row, gain, normed);
    if (!weight.view.empty()) context.wgrad(out_site_, normed, matrix(dout), out_weight_.sum.adds(weight), 0);
    context.dgrad(out_site_, matrix(dout), dy, false, 0);
  } else {
    out_weight_.sum.clear(*elementwise_, weight);
    gains_.sum.clear(*elementwise_, dgain);
  }
  if (!weight.view.empty()) out_weight_.sum.close(weight);
  const bool adds = gains_.sum.adds(dgain);
  if (shared_norm_) {
    shared_norm_->backward(context, y, row, gain, dy, dy, matrix(dprojected), dgain.view, adds);
  } else if (batch_ > 0) {
    const TensorView written = dgain.view.empty()
                                   ? window(context.workspace(workspace_), spare_at_, parameter_, gain.shape)
                                   : dgain.view;
    norm_->backward(y, row, gain, dy, dy, matrix(dprojected), written, adds, scratch(context));
  }
  if (!dgain.view.empty()) gains_.sum.close(dgain);
  return dy.reshaped({batch_, time_, share_.columns()});
}

void Mamba2::parameters_of_heads_backward(BackwardContext& context, TensorView xbc, TensorView dy,
                                          TensorView dxbc, TensorView dprojected) {
  Held* const held[] = {&decays_, &steps_, &skips_};
  GradientSink sinks[3];
  bool accumulate = false;  // the three belong to this node alone, so their sums begin together
  for (int i = 0; i < 3; ++i) {
    sinks[i] = context.gradient(held[i]->ref);
    if (!sinks[i].view.empty()) accumulate = held[i]->sum.adds(sinks[i]);
  }
  if (batch_ > 0) {
    scan_->backward(inputs(context, xbc), context.saved(states_), dy, {},
                    {.xbc = dxbc,
                     .projected = dprojected,
                     .a_log = sinks[0].view,
                     .dt_bias = sinks[1].view,
                     .d = sinks[2].view,
                     .initial = {},
                     .accumulate = accumulate},
                    scratch(context));
  }
  for (int i = 0; i < 3; ++i) {
    if (batch_ == 0) held[i]->sum.clear(*elementwise_, sinks[i]);
    if (!sinks[i].view.empty()) held[i]->sum.close(sinks[i]);
  }
}

void Mamba2::convolution_backward(BackwardContext& context, TensorView dxbc, TensorView dprojected) {
  const GradientSink weight = context.gradient(conv_weight_.ref), bias = context.gradient(conv_bias_.ref);
  const std::int64_t channels = share_.channels();
  const TensorView bytes = context.workspace(workspace_);
  const TensorView spare_weight = window(bytes, spare_at_, parameter_, {channels, conv_}),
                   spare_bias = window(bytes, spare_at_ + dtype_bytes(parameter_, channels * conv_),
                                       parameter_, {channels});
  const bool apart = share_.shared();
  if (apart || batch_ == 0) {
    conv_weight_.sum.clear(*elementwise_, weight);
    conv_bias_.sum.clear(*elementwise_, bias);
  }
  if (batch_ > 0) {
    const Filters own = filters(context);
    const bool accumulate =
        !apart && (weight.view.empty() ? conv_bias_.sum.adds(bias) : conv_weight_.sum.adds(weight));
    convolution_->backward(
        projected(context), documents(context), own.weight, own.bias, dxbc, dprojected,
        apart || weight.view.empty() ? spare_weight : weight.view.reshaped({channels, conv_}),
        apart || bias.view.empty() ? spare_bias : bias.view, accumulate, scratch(context));
  }
  std::int64_t at = 0;
  for (const ColumnRun& run : apart&& batch_ > 0 ? share_.kept_channels() : ColumnRuns{}) {
    const std::int64_t first = share_.first_channel() + run.first, last = first + run.width;
    if (!weight.view.empty())
      elementwise_->axpy(1, flat(spare_weight.rows(at, at + run.width)), flat(weight.view.rows(first, last)));
    if (!bias.view.empty())
      elementwise_->axpy(1, spare_bias.rows(at, at + run.width), bias.view.rows(first, last));
    at += run.width;
  }
  if (!weight.view.empty()) conv_weight_.sum.close(weight);
  if (!bias.view.empty()) conv_bias_.sum.close(bias);
}

void Mamba2::in_backward(BackwardContext& context, TensorView dprojected) {
  const GradientSink weight = context.gradient(in_.ref);
  // The site has rows of one group of the shard where the group is shared.
  const bool some_rows = share_.groups() < share_.groups_of_shard();
  if (batch_ == 0 || some_rows) in_.sum.clear(*elementwise_, weight);
  if (batch_ > 0 && !weight.view.empty())
    context.wgrad(in_site_, {}, matrix(dprojected), some_rows || in_.sum.adds(weight), 0);
  if (!weight.view.empty()) in_.sum.close(weight);

  const GradientSink dx = context.input_gradient(0);
  if (dx.view.shape.rank() == 0) return;  // the gradient of an empty shard has a rank
  if (batch_ == 0) {
    x_sum_.clear(*elementwise_, dx);
  } else if (!dx.view.empty()) {
    context.dgrad(in_site_, matrix(dprojected), matrix(dx.view), x_sum_.adds(dx), 0);
  }
  x_sum_.close(dx);
}

}  // namespace tenon::ssm

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.ssm", .version = "0.1.0", .summary = "state space layers"},
             tenon::ssm::Mamba2)
