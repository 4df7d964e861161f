// Weights on their way to other programs and back: conversion of elements, and the rules of a model's names
// (NamePlan) applied to its parameters, in both directions. Serves `tenon export` and `tenon import`; knows
// no files.
#pragma once

#include <tenon/sdk/outside_training.hpp>
#include <tenon/stored_model.hpp>
#include <tenon/tensor.hpp>

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::cli {

/// Elements of f64, f32, f16 or bf16 to f64, f32 or bf16, each rounded once, to nearest even.
std::vector<std::byte> convert_elements(DType from, std::span<const std::byte> bytes, double factor,
                                        DType to);

/// A rule with the tensors that it is for. Types may differ from tensor to tensor.
struct NameGroup {
  std::vector<StoredTensor> here, there;
  double factor = 1;
  bool transposed = false;
  std::vector<RowRange> blocks = {};  ///< as NameRule::blocks
};

/// Every parameter in exactly one group; those without a rule keep their names. Of `there`, types are those
/// of the parameters. `owner` begins messages: "runs/baby/1". Throws Error(kConfig) for a rule about a
/// parameter that there is not, Error(kPlugin) for rules that contradict the parameters or each other.
std::vector<NameGroup> name_groups(const NamePlan& plan, std::span<const StoredTensor> parameters,
                                   const std::string& owner);

/// Whether `name` is one of NamePlan::derived.
bool is_derived(const NamePlan& plan, std::string_view name);

enum class Direction { kExport, kImport };

/// Type of an exported group: `asked` for numbers with a fraction, else as they are. A scaled f16 becomes
/// f32, which holds every product of it. Throws Error(kConfig) for a factor over whole numbers.
DType exported_type(const NameGroup& group, std::optional<DType> asked);

/// Reads rows [row, row + rows) of a tensor into `out`; a scalar has one row.
using ReadRows = std::function<void(const StoredTensor& tensor, std::int64_t row, std::int64_t rows,
                                    std::span<std::byte> out)>;
/// The next elements of a tensor, row-major.
using TakeElements = std::function<void(TensorView piece)>;

/// Makes tensor `target` of `there` (kExport) or `here` (kImport) as `to`, and gives it in pieces. Holds a
/// piece of 4 MiB or one row, and twice the tensor where the rule transposes.
void translate(const NameGroup& group, Direction direction, std::size_t target, DType to,
               const ReadRows& read, const TakeElements& take);

/// Reads rows of a stored model's parameters.
ReadRows rows_of(StoredModel& model);

}  // namespace tenon::cli
