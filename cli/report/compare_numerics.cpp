// Tensors of two checkpoints, one at a time in host memory.
#include "report/compare.hpp"

#include <tenon/checkpoint.hpp>
#include <tenon/error.hpp>
#include <tenon/tensor_values.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

namespace tenon::report {
namespace {

/// The newest generation that can be opened. Nothing is repaired: a reader must not change a run.
CheckpointReader newest(FileSystem& files, const std::string& attempt) {
  const std::string folder = attempt + "/checkpoints";
  std::vector<std::int64_t> steps;
  const CheckpointStore store(files, folder, {});
  if (files.exists(folder)) steps = store.generations();
  std::string reasons;
  for (std::size_t i = steps.size(); i-- > 0;) {
    try {
      return store.open(steps[i]);
    } catch (const Error& error) {
      reasons += std::string("; ") + error.what();
    }
  }
  fail_run(folder + ": no checkpoint to compare" + reasons +
           "; choose a [recovery] that saves, e.g. type = \"full\"");
}

TensorView read(CheckpointReader& reader, const TensorSpec& spec, std::vector<std::byte>& memory) {
  TensorView view;
  view.dtype = spec.dtype;
  view.shape = spec.shape;
  memory.resize(static_cast<std::size_t>(std::max<std::int64_t>(1, view.bytes())));
  view.data = memory.data();
  reader.read(spec.name, view);
  return view;
}

}  // namespace

TensorComparison compare_tensors(const std::string& name, const TensorView& a, const TensorView& b) {
  TensorComparison result;
  result.name = name;
  result.dtype = dtype_name(a.dtype);
  result.shape = a.shape.text();
  result.elements = a.elements();
  result.equal_bits = a.bytes() == 0 || std::memcmp(a.data, b.data, static_cast<std::size_t>(a.bytes())) == 0;
  if (result.equal_bits || !has_real_values(a.dtype)) return result;
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>(a.elements()));
  for_each_real(a, [&](double value) { values.push_back(value); });
  std::size_t i = 0;
  for_each_real(b, [&](double y) {
    const double x = values[i++];
    if (x == y || (std::isnan(x) && std::isnan(y))) return;
    ++result.differing;
    if (!std::isfinite(x) || !std::isfinite(y)) return;
    const double difference = std::abs(x - y);
    result.largest_difference = std::max(result.largest_difference, difference);
    result.largest_relative =
        std::max(result.largest_relative, difference / std::max(std::abs(x), std::abs(y)));
  });
  return result;
}

NumericComparison compare_checkpoints(const std::string& attempt_a, const std::string& attempt_b) {
  const auto files = make_posix_files();
  CheckpointReader a = newest(*files, attempt_a), b = newest(*files, attempt_b);
  NumericComparison result;
  result.step_a = a.step();
  result.step_b = b.step();
  std::set<std::string> names;
  for (const TensorSpec& spec : a.tensors()) names.insert(spec.name);
  for (const TensorSpec& spec : b.tensors()) names.insert(spec.name);
  std::vector<std::byte> memory_a, memory_b;
  for (const std::string& name : names) {
    const TensorSpec *in_a = a.find(name), *in_b = b.find(name);
    if (in_a != nullptr && in_b != nullptr && in_a->dtype == in_b->dtype && in_a->shape == in_b->shape) {
      const TensorView view_a = read(a, *in_a, memory_a), view_b = read(b, *in_b, memory_b);
      result.tensors.push_back(compare_tensors(name, view_a, view_b));
      continue;
    }
    TensorComparison tensor;
    tensor.name = name;
    tensor.equal_bits = false;
    const auto text = [](const TensorSpec& spec) {
      return fmt::format("{} {}", dtype_name(spec.dtype), spec.shape.text());
    };
    tensor.problem = in_a == nullptr   ? "only in B"
                     : in_b == nullptr ? "only in A"
                                       : fmt::format("A has {}, B has {}", text(*in_a), text(*in_b));
    result.tensors.push_back(std::move(tensor));
  }
  return result;
}

}  // namespace tenon::report
