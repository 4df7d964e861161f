// Reading parameters of a stored model, whole or in pieces of a table, into a set of their own.
#include "shared_weights.hpp"

#include <tenon/error.hpp>
#include <tenon/tensor_values.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <numeric>

namespace tenon::frozen {
namespace {

/// Rows of a table that are in host memory at a time.
constexpr std::int64_t kRows = 4096;

const StoredTensor* find(const StoredModel& model, const std::string& name) {
  for (const StoredTensor& stored : model.parameters()) {
    if (stored.name == name) return &stored;
  }
  return nullptr;
}

/// Reads elements in the stored type and leaves them in that of `to`, which is in host memory.
class Reader {
 public:
  Reader(StoredModel& model, const StoredTensor& stored) : model_(model), stored_(stored) {}

  void read(const Shape& offset, const TensorView& to) {
    if (to.dtype == stored_.dtype) {
      model_.read(stored_.name, offset, to);
      return;
    }
    bytes_.resize(dtype_bytes(stored_.dtype, to.elements()));
    const TensorView from{bytes_.data(), to.shape, stored_.dtype, MemorySpace::kHost};
    model_.read(stored_.name, offset, from);
    if (to.dtype == DType::kF64) {
      double* out = to.as<double>();
      for_each_real(from, [&](double value) { *out++ = value; });
    } else {
      float* out = to.as<float>();
      for_each_real(from, [&](double value) { *out++ = static_cast<float>(value); });
    }
  }

 private:
  StoredModel& model_;
  const StoredTensor& stored_;
  std::vector<std::byte> bytes_;
};

bool converts(DType from, DType to) {
  return from == to ||
         (has_real_values(from) && !dtype_is_complex(from) && (to == DType::kF32 || to == DType::kF64));
}

/// "" if the model can give the parameter.
std::string problem(const StoredModel& model, const ParameterInfo& info) {
  const StoredTensor* stored = find(model, info.spec.name);
  const std::string expected =
      fmt::format("expected {} {}", dtype_name(info.spec.dtype), info.spec.shape.text());
  if (stored == nullptr) return fmt::format("'{}' is missing, {}", info.spec.name, expected);
  if (stored->shape == info.spec.shape && converts(stored->dtype, info.spec.dtype)) return "";
  return fmt::format("'{}': {}, found {} {}", info.spec.name, expected, dtype_name(stored->dtype),
                     stored->shape.text());
}

}  // namespace

std::vector<ParameterSet*> SharedWeights::load(StoredModel& model,
                                               const std::vector<ParameterInfo>& parameters) {
  std::vector<std::string> problems;
  for (const ParameterInfo& info : parameters) {
    if (std::string found = problem(model, info); !found.empty()) problems.push_back(std::move(found));
  }
  if (!problems.empty())
    fail_config(fmt::format("the weights in {} are not those of its graph; {} of {} parameters differ:\n  {}",
                            model.folder(), problems.size(), parameters.size(), fmt::join(problems, "\n  ")));
  const std::lock_guard lock(mutex_);
  std::vector<ParameterSet*> sets;
  for (const ParameterInfo& info : parameters) {
    std::unique_ptr<ParameterSet>& set = sets_[fmt::format(
        "{} {} {} {}", info.spec.name, dtype_name(info.spec.dtype), info.local.text(), info.offset.text())];
    if (set == nullptr) set = loaded(model, *find(model, info.spec.name), info);
    sets.push_back(set.get());
  }
  return sets;
}

std::size_t SharedWeights::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

std::unique_ptr<ParameterSet> SharedWeights::loaded(StoredModel& model, const StoredTensor& stored,
                                                    const ParameterInfo& info) {
  ParameterInfo alone = info;
  alone.index = 0, alone.begin = 0;
  alone.arena = info.spec.role == Role::kRowTable ? -1 : 0;
  auto set = make_parameter_set(fmt::format("{}, {}", model.folder(), info.spec.name), {alone}, device_,
                                SetContents::kEverything);
  Reader reader(model, stored);
  std::vector<std::byte> staging;
  const auto room = [&](const Shape& shape) {
    staging.resize(dtype_bytes(info.spec.dtype, shape.elements()));
    return TensorView{staging.data(), shape, info.spec.dtype, MemorySpace::kHost};
  };
  if (RowTable* table = set->table(0)) {
    for (std::int64_t first = table->owned_first(); first < table->owned_last(); first += kRows) {
      std::vector<std::int64_t> ids(std::min(kRows, table->owned_last() - first));
      std::iota(ids.begin(), ids.end(), first);
      const TensorView rows = room({static_cast<std::int64_t>(ids.size()), table->width()});
      reader.read(Shape{first, 0}, rows);
      table->write(ids, rows);
    }
  } else if (const TensorView target = set->tensor(0); target.space == MemorySpace::kHost) {
    if (!target.empty()) reader.read(info.offset, target);
  } else if (!target.empty()) {
    const TensorView here = room(info.local);
    reader.read(info.offset, here);
    device_.copy(here, target);
    device_.synchronize();
  }
  set->touch(-1);
  bytes_ += dtype_bytes(info.spec.dtype, info.local.elements());
  return set;
}

}  // namespace tenon::frozen
