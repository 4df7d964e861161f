// Bags of a table are summed where its rows are. For tables on the host that is there, whatever the device:
// the threads share tables and blocks of bags, and sums travel. A device sums the bags of tables in its own
// memory. Sums are in the type of the rows and rounded to that of activations at the end. Ids are checked
// once, on the host, where gradients of rows are collected, too.
#include "embedding_bag.hpp"

#include "common.hpp"
#include "lookups.hpp"

#include <tenon/error.hpp>
#include <tenon/host.hpp>
#include <tenon/kernels/bf16.hpp>
#include <tenon/parallel.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

namespace tenon::recsys {
namespace {

/// Bags in one block of a thread.
constexpr std::int64_t kBlock = 128;

Reads reads_of(const ForwardContext& context) {
  return context.training() ? Reads::kTraining : Reads::kEvaluation;
}

template <class Real>
void store(const Real* from, std::int64_t count, std::int64_t at, TensorView out) {
  if (out.dtype == DType::kBF16) {
    auto* to = static_cast<kernels::Bf16*>(out.data) + at;
    for (std::int64_t i = 0; i < count; ++i) to[i] = kernels::to_bf16(static_cast<float>(from[i]));
  } else {
    std::copy(from, from + count, static_cast<Real*>(out.data) + at);
  }
}

template <class Real>
void load(TensorView in, std::int64_t at, std::int64_t count, Real factor, Real* to) {
  if (in.dtype == DType::kBF16) {
    const auto* from = static_cast<const kernels::Bf16*>(in.data) + at;
    for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<Real>(kernels::to_float(from[i])) * factor;
  } else {
    const auto* from = static_cast<const Real*>(in.data) + at;
    for (std::int64_t i = 0; i < count; ++i) to[i] = from[i] * factor;
  }
}

}  // namespace

EmbeddingBag::EmbeddingBag(const Options& options)
    : options_(options),
      rows_(options.integers("rows")),
      mean_(options.text("mode") == "mean"),
      placement_(options.choice("placement", kPlacements)) {}

void EmbeddingBag::read_shape(InferContext& context) {
  const ValueSpec ids = context.input(0);
  const auto tables = static_cast<std::int64_t>(rows_.size());
  const bool fits =
      ids.dtype == DType::kI32 && (ids.shape.rank() == 2 || ids.shape.rank() == 3) && ids.shape[1] == tables;
  if (!fits) {
    refuse(context,
           fmt::format("expected i32 ids [batch, {0}] or [batch, {0}, length] for {0} tables, found {1} {2}",
                       tables, dtype_name(ids.dtype), ids.shape.text()));
  }
  for (const std::int64_t rows : rows_) {
    if (rows < 1 || rows > std::numeric_limits<std::int32_t>::max()) {
      refuse(context, fmt::format("a table of {} rows cannot be addressed by i32 ids; expected 1 to {}", rows,
                                  std::numeric_limits<std::int32_t>::max()));
    }
  }
  shape_.batch = ids.shape[0];
  shape_.tables = tables;
  shape_.length = ids.shape.rank() == 3 ? ids.shape[2] : 1;
  shape_.width = options_.integer("width");
}

void EmbeddingBag::declare_tables(InferContext& context, Communicator* replicas) {
  const int parts = replicas == nullptr ? 1 : replicas->size();
  const bool sharded = parts > 1 && placement_ != Placement::kReplicated;
  const std::vector<int> owners = balance(rows_, parts);
  tables_.clear();
  offsets_.clear();
  for (std::size_t t = 0; t < rows_.size(); ++t) {
    ParameterSpec spec;
    spec.name = table_name(t);
    spec.dtype = real_;
    spec.shape = Shape{rows_[t], shape_.width};
    spec.role = Role::kRowTable;
    spec.init = Initializer::kUniform;
    spec.init_scale = options_.has("init_scale") ? options_.real("init_scale")
                                                 : 1.0 / std::sqrt(static_cast<double>(rows_[t]));
    if (sharded) {
      offsets_.push_back(placement_ == Placement::kRows ? even_offsets(rows_[t], parts)
                                                        : whole_offsets(rows_[t], owners[t], parts));
      spec.sharding = {{0, {kReplicaAxis}, offsets_.back()}};
    }
    tables_.push_back(context.parameter(spec));
  }
  if (sharded) report_placement(context, parts);
}

void EmbeddingBag::report_placement(InferContext& context, int replicas) const {
  if (context.host().rank() != 0) return;
  const auto row_bytes = static_cast<double>(dtype_bytes(real_, shape_.width));
  for (std::size_t r = 0; r < static_cast<std::size_t>(replicas); ++r) {
    double rows = 0, lookups = 0;
    std::vector<std::size_t> held;
    for (std::size_t t = 0; t < offsets_.size(); ++t) {
      const std::int64_t here = offsets_[t][r + 1] - offsets_[t][r];
      if (here == 0) continue;
      rows += static_cast<double>(here);
      lookups += static_cast<double>(here) / static_cast<double>(rows_[t]);
      held.push_back(t);
    }
    context.host().log(
        LogLevel::kInfo,
        fmt::format(
            "layer '{}', placement {}: replica {} holds {:.0f} rows, {:.1f} MiB, of {}; about {:.1f} % of "
            "all lookups if rows of a table were read alike",
            context.name(), kPlacements.name(placement_), r, rows, rows * row_bytes / (1024.0 * 1024.0),
            held.empty() ? "no table" : fmt::format("tables {}", fmt::join(held, " ")),
            100 * lookups / static_cast<double>(offsets_.size())));
  }
}

void EmbeddingBag::join_service(InferContext& context) {
  service_ = static_cast<RowService*>(context.host().query(RowService::kId));
  if (service_ == nullptr) return;
  if (real_ == DType::kF64) {
    answers_ = std::make_unique<PooledAnswers<double>>(shape_.width);
  } else {
    answers_ = std::make_unique<PooledAnswers<float>>(shape_.width);
  }
  std::vector<std::string> names;
  for (std::size_t t = 0; t < rows_.size(); ++t) names.push_back(table_name(t));
  node_ = service_->offer(name_, names, *answers_);
}

std::string EmbeddingBag::table_name(std::size_t table) const {
  return fmt::format("{}.{}.weight", name_, table);
}

void EmbeddingBag::infer(InferContext& context) {
  name_ = context.name();
  device_ = &context.device();
  read_shape(context);
  real_ = context.parameters();
  if (real_ != DType::kF32 && real_ != DType::kF64)
    refuse(context, fmt::format("rows are kept in f32 or f64, the precision asks for {}", dtype_name(real_)));
  const DType activations = context.activations();
  if (activations != real_ && !(activations == DType::kBF16 && real_ == DType::kF32))
    refuse(context, fmt::format("activations must be {} or bf16, found {}", dtype_name(real_),
                                dtype_name(activations)));
  Communicator* replicas = placement_ != Placement::kReplicated ? context.replicas() : nullptr;
  declare_tables(context, replicas);
  if (!offsets_.empty()) {
    if (real_ == DType::kF64) {
      wide_lookups_ = std::make_unique<Lookups<double>>(shape_, offsets_, *replicas);
    } else {
      lookups_ = std::make_unique<Lookups<float>>(shape_, offsets_, *replicas);
    }
  }
  if (!offsets_.empty()) join_service(context);
  rows_of_tables_ = offsets_.empty() ? static_cast<TableRowOps*>(device_->query(TableRowOps::kId)) : nullptr;
  bag_begin_.clear();
  for (std::int64_t bag = 0; bag <= kBlock; ++bag) bag_begin_.push_back(bag * shape_.length);
  table_pointers_.assign(rows_.size(), nullptr);
  device_rows_.assign(rows_.size(), nullptr);
  gradient_ids_.resize(shape_.batch * shape_.tables * shape_.length);
  gradient_counts_.resize(rows_.size());
  // Forward: sums before rounding. Backward: the gradient of every id's row.
  const std::int64_t bags = shape_.batch * shape_.tables;
  const std::int64_t elements = bags * shape_.width * (context.training() ? shape_.length : 1);
  sums_ = context.workspace(dtype_bytes(real_, elements));
  context.keep_input(0);
  context.output({{shape_.batch, shape_.tables, shape_.width}, activations});
}

void EmbeddingBag::check_ids(std::span<const std::int32_t> ids) const {
  const std::int32_t* bag = ids.data();
  for (std::int64_t sample = 0; sample < shape_.batch; ++sample) {
    for (std::size_t table = 0; table < rows_.size(); ++table, bag += shape_.length) {
      const auto outside = [&](std::int32_t id) { return id < -1 || id >= rows_[table]; };
      const std::int32_t* found = std::find_if(bag, bag + shape_.length, outside);
      if (found == bag + shape_.length) continue;
      fail_run(
          fmt::format("layer '{}': sample {} of the batch reads row {} of table {}, which has {} rows (-1 = "
                      "no row); check that "
                      "the data and the model agree on the rows of the tables",
                      name_, sample, *found, table, rows_[table]));
    }
  }
}

std::size_t EmbeddingBag::find_tables(ForwardContext& context) {
  std::size_t on_device = 0;
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    RowTable* const table = context.table(tables_[t]);
    table_pointers_[t] = table;
    device_rows_[t] =
        rows_of_tables_ == nullptr ? nullptr : static_cast<DeviceRows*>(table->query(DeviceRows::kId));
    if (device_rows_[t] != nullptr) ++on_device;
  }
  return on_device;
}

void EmbeddingBag::pool_on_device(ForwardContext& context) {
  const TensorView ids = context.input(0).reshaped(Shape{shape_.batch, shape_.tables, shape_.length});
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    if (device_rows_[t] == nullptr) continue;
    rows_of_tables_->pool(device_rows_[t]->rows_on_device(), ids, static_cast<std::int64_t>(t), mean_,
                          context.output(0));
  }
}

template <class Real>
void EmbeddingBag::sum_bags(std::span<const std::int32_t> ids, Reads reads, Real* sums) {
  const std::int64_t blocks = (shape_.batch + kBlock - 1) / kBlock;
  parallel_for(blocks * shape_.tables, 1, [&](std::int64_t begin, std::int64_t end) {
    static thread_local PoolingScratch<Real> scratch;
    static thread_local std::vector<std::int32_t> gathered;
    for (std::int64_t item = begin; item < end; ++item) {
      const std::int64_t table = item / blocks, first = item % blocks * kBlock;
      if (device_rows_[table] != nullptr) continue;
      const std::int64_t last = std::min(shape_.batch, first + kBlock);
      gathered.clear();
      for (std::int64_t b = first; b < last; ++b) {
        const auto at = ids.begin() + (b * shape_.tables + table) * shape_.length;
        gathered.insert(gathered.end(), at, at + shape_.length);
      }
      const std::size_t bags = last - first;
      pool<Real>(*table_pointers_[table], gathered, std::span<const std::int64_t>(bag_begin_).first(bags + 1),
                 sums + (first * shape_.tables + table) * shape_.width, shape_.tables * shape_.width, scratch,
                 reads);
    }
  });
}

/// Means, and the rounding to the output's type.
template <class Real>
void EmbeddingBag::finish(std::span<const std::int32_t> ids, Real* sums, TensorView output) const {
  parallel_for(shape_.batch * shape_.tables, kBlock, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t bag = begin; bag < end && mean_; ++bag) {
      const auto from = ids.begin() + bag * shape_.length;
      const auto rows = std::count_if(from, from + shape_.length, [](std::int32_t id) { return id >= 0; });
      if (rows < 2) continue;
      for (std::int64_t j = 0; j < shape_.width; ++j) sums[bag * shape_.width + j] /= static_cast<Real>(rows);
    }
    if (output.data == sums) return;
    store(sums + begin * shape_.width, (end - begin) * shape_.width, begin * shape_.width, output);
  });
}

void EmbeddingBag::forward(ForwardContext& context) {
  const std::span<const std::int32_t> ids = this->ids(context);
  check_ids(ids);
  const bool requested = service_ != nullptr && context.training();
  const std::size_t on_device = requested ? 0 : find_tables(context);
  if (on_device == tables_.size()) return pool_on_device(context);
  const TensorView output = values_on_host_.room(context.output(0));
  const auto run = [&]<class Real>(Lookups<Real>* lookups) {
    auto* sums = static_cast<Real*>(output.dtype == real_ ? output.data : room(context).data);
    if (lookups == nullptr) {
      sum_bags<Real>(ids, reads_of(context), sums);
    } else if (requested) {
      lookups->ask(ids, *service_, node_, sums);
    } else {
      lookups->run(ids, table_pointers_, sums, reads_of(context));
    }
    finish<Real>(ids, sums, output);
  };
  if (real_ == DType::kF64) {
    run(wide_lookups_.get());
  } else {
    run(lookups_.get());
  }
  values_on_host_.write(*device_, context.output(0));
  if (on_device > 0) pool_on_device(context);
}

void EmbeddingBag::lookups(std::span<const TensorView> inputs, const Visit& visit) {
  const std::span<const std::int32_t> ids = inputs[0].span<std::int32_t>();
  for (std::int64_t t = 0; t < shape_.tables; ++t) {
    looked_up_.clear();
    for (std::int64_t b = 0; b < shape_.batch; ++b) {
      const auto bag = ids.begin() + (b * shape_.tables + t) * shape_.length;
      std::copy_if(bag, bag + shape_.length, std::back_inserter(looked_up_),
                   [](std::int32_t id) { return id >= 0; });
    }
    visit(tables_[t], looked_up_);
  }
}

std::span<const std::int32_t> EmbeddingBag::ids(RunContext& context) {
  return ids_on_host_.read(*device_, context.input(0)).span<std::int32_t>();
}

TensorView EmbeddingBag::room(RunContext& context) {
  return sums_on_host_.room(context.workspace(sums_));
}

/// Every id's gradient is its bag's, divided by the rows of the bag in a mean.
template <class Real>
void EmbeddingBag::collect(BackwardContext& context) {
  const std::span<const std::int32_t> ids = this->ids(context);
  const TensorView dy = values_on_host_.read(*device_, context.output_gradient(0));
  auto* values = static_cast<Real*>(room(context).data);
  const std::int64_t per_table = shape_.batch * shape_.length;
  parallel_for(shape_.tables, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      std::int64_t next = t * per_table;
      for (std::int64_t b = 0; b < shape_.batch; ++b) {
        const std::int64_t place = b * shape_.tables + t;
        const auto from = ids.begin() + place * shape_.length;
        Real factor = 1;
        if (mean_) {
          const auto rows =
              std::count_if(from, from + shape_.length, [](std::int32_t id) { return id >= 0; });
          factor = Real{1} / static_cast<Real>(std::max<std::ptrdiff_t>(1, rows));
        }
        for (std::int64_t l = 0; l < shape_.length; ++l) {
          if (from[l] < 0) continue;
          gradient_ids_[next] = from[l];
          load<Real>(dy, place * shape_.width, shape_.width, factor, values + next * shape_.width);
          ++next;
        }
      }
      gradient_counts_[t] = next - t * per_table;
    }
  });
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    const std::size_t count = gradient_counts_[t];
    const std::size_t at = t * static_cast<std::size_t>(per_table);
    TensorView rows;
    rows.data = values + at * static_cast<std::size_t>(shape_.width);
    rows.dtype = real_;
    rows.shape = Shape{gradient_counts_[t], shape_.width};
    context.row_gradient(tables_[t], std::span<const std::int64_t>(gradient_ids_).subspan(at, count), rows);
  }
}

void EmbeddingBag::backward(BackwardContext& context) {
  if (real_ == DType::kF64) {
    collect<double>(context);
  } else {
    collect<float>(context);
  }
}

}  // namespace tenon::recsys
