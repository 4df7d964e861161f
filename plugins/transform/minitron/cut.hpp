// The tensors of a model after a cut: which rows and columns of which tensor of the source each one has, and
// their bytes. Tensors of one axis read one list of indices, so no two can be cut apart.
#pragma once

#include "kept.hpp"

#include <tenon/stored_model.hpp>
#include <tenon/transform.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tenon::minitron {

/// A tensor of the result. Null lists: all indices of the dimension.
struct TensorCut {
  std::string from, to;
  StoredTensor result;  ///< its name is `to`
  std::shared_ptr<const Indices> rows, columns;
  /// For each row of the result, a row of the source that went and whose residual it takes; -1: none. Null:
  /// no row takes one.
  std::shared_ptr<const Indices> merged;
};

/// Indices of the right number for a plan, whichever they are: for shapes.
Kept any_kept(const DecoderShape& shape, const Plan& plan);

/// All tensors of the result, by name ascending. `merge`: query heads that stay take the residual of those
/// that went. Throws Error(kConfig) for a parameter that the decoder has not, or that has another shape.
std::vector<TensorCut> cuts_of(const StoredModel& source, const DecoderShape& shape, const Plan& plan,
                               const Kept& kept, bool merge);

/// The elements of one tensor of the result, in pieces of at most a few MiB or one row.
void read_cut(StoredModel& source, const TensorCut& cut, const std::function<void(TensorView)>& use);

}  // namespace tenon::minitron
